"""Contenders of `benchmarks/against_trl.py`: TRL in two ways and Quartet, with the same policy, tasks and settings."""
