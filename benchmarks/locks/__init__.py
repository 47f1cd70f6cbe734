"""Parts of `benchmarks/curation.py`: initial policy, demonstrations, one run, measures, variants, statistics."""
