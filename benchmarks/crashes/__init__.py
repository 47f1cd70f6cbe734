"""What `benchmarks/crash.py` and the tests of crashes are made of: a run that can be hit, and a campaign of hits."""
