"""Atomic writes of files and folders, with checksums; lock files."""
