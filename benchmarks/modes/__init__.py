"""Parts of `benchmarks/decoupling.py`: the modes, the environments, the policy, one run, its figures, the report."""
