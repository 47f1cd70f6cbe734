"""The policy: tokenizer, model, files on disk. `make_policy` makes a new one, `load_policy` loads any."""
