"""Recipes as files: read, validated with helpful errors, upgraded, described."""
