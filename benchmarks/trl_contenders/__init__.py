"""Who trains in `benchmarks/against_trl.py`: TRL's two ways and Quartet, with the same policy, tasks and settings."""
