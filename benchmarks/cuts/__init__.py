"""Runs on a network of nodes that are cut off, for `benchmarks.partitions`."""
