"""Telemetry of a run: metrics, spans, heartbeats, logs and receipts; their writers, and readers of their files."""
