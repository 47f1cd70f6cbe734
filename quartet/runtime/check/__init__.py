"""Checks of a recipe before a run starts, without heavy imports."""
