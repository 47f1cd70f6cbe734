"""Parts of `benchmarks/scale.py`: a simulator in virtual time around the real ledger and the real data manager."""
