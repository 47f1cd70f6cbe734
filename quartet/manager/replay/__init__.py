"""Replays, which add stored rollouts to later groups: one part per file."""
