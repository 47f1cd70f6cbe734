"""Checks of `quartet env check`: one part per file."""
