"""Recipes as files: reading, validation with helpful errors, upgrades and descriptions."""
