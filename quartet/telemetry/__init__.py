"""Metrics, spans, presence, logs and receipts of a run: what modules write, and readers of the files."""
