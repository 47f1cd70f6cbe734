"""Replays, which let stored rollouts be trained on again: one part per file."""
