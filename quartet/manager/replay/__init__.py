"""Replays: one part per file. What was seen before may be trained on again."""
