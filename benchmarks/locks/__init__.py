"""What `benchmarks/curation.py` is made of: start, demonstrations, one run, measures, variants, statistics."""
