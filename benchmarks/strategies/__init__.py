"""Strategies for rollouts against plain GRPO on `locks`: one file per method, found by its name."""

from pathlib import Path

_HARNESS = {"__init__", "__main__", "base", "contrast", "shapley", "table", "views"}
_FOUND = sorted(file.stem for file in Path(__file__).parent.glob("*.py") if file.stem not in _HARNESS)
TUNING = [name for name in _FOUND if name.endswith("_tuning")]
"""Names of the experiments that choose settings, on seeds that are never published; they run only if they are named."""
IN_A_BROWSER = ["best_miniwob"]
"""Names of the experiments in a browser, which take hours; they run only if they are named."""
NAMES = [name for name in _FOUND if name not in (*TUNING, *IN_A_BROWSER)]
"""Names of the methods: all other files of this folder that are not part of the harness."""
