"""Dispatches: one part per file."""
