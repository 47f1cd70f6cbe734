"""What the part `learning` of `benchmarks/decoupling.py` is made of: arms, one run, the report."""
