"""Rollout allocators: one part per file."""
