"""Horizons: one part per file."""
