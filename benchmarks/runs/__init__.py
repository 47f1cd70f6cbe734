"""Whole runs of recipes that ship, one per seed, whose summaries are raw results."""
