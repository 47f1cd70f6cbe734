"""Parts of `benchmarks/scale.py`, one file each, found by its name: systems as scenarios of the simulator.

A file states the published settings with their source, what is assumed, and what is compared. It is all that a new
published system needs.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.published.base import Part

_HARNESS = {"__init__", "base", "rows", "simulated", "views"}
NAMES = sorted(file.stem for file in Path(__file__).parent.glob("*.py") if file.stem not in _HARNESS)
"""Names of the parts: all files of this folder that are not part of the harness."""


def find(name: str) -> "Part[Any]":
    """Return the part of a file, its class `Main`."""
    return import_module(f"{__name__}.{name}").Main()
