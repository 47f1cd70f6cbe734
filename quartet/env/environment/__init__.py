"""Environments: one file each."""
