"""Parts of `benchmarks/crash.py` and of the tests of crashes: a run whose processes are killed, and a campaign."""
