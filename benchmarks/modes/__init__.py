"""What `benchmarks/decoupling.py` is made of: the modes, the policy, one run, its figures, the report."""
