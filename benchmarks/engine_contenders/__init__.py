"""Contenders of `benchmarks/engine.py`, one file each, all with the same model, requests and threads."""
