"""Telemetry: metrics, spans, presence, logs and receipts of a run, their writers and readers of the files."""
