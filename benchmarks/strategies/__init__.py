"""Strategies for rollouts against plain GRPO on `locks`: one file per method, found by its name."""

from pathlib import Path

_HARNESS = {"__init__", "__main__", "base", "shapley", "table", "views"}
NAMES = sorted(file.stem for file in Path(__file__).parent.glob("*.py") if file.stem not in _HARNESS)
"""Names of the methods: all files of this folder that are not part of the harness."""
