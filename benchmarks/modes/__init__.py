"""Parts of `benchmarks/decoupling.py`: the modes, the policy, one run, its figures, the report."""
