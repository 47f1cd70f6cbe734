"""Filters of closed groups: one part per file, applied in the order of the recipe."""
