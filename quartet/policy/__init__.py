"""The policy: tokenizer, model, files on disk. `make_policy` makes one, `load_policy` loads any."""
