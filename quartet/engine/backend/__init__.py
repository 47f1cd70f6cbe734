"""Engines by name: one file each."""
