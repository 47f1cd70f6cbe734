"""Policies: tokenizer, model, files on disk. `make_policy` makes a new policy, `load_policy` loads one from disk."""
