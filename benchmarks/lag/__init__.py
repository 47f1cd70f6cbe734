"""Part `learning` of `benchmarks/decoupling.py`: arms (compared settings), one run, the report."""
