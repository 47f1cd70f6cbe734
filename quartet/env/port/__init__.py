"""Comparison of a fast port of an environment with its reference."""
