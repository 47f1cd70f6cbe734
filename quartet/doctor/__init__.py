"""What this machine has and lacks: one file per check, one function each.

A check looks at a `Place` (where runs will lie, and their recipe) and yields findings. Add yours to `CHECKS`.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator

from quartet.doctor.base import Finding, Place

CHECKS = (
    *("python", "packages", "compiler", "browser", "fonts", "processors"),
    *("memory", "disk", "gpu", "database", "ports", "model", "run"),
)
"""Names of the files, in the order they are looked at."""
Check = Callable[[Place], Iterable[Finding]]

__all__ = ["CHECKS", "Check", "Finding", "Place", "examine"]


def examine(place: Place) -> Iterator[tuple[str, list[Finding]]]:
    """Each check with what it found, as it is done."""
    for name in CHECKS:
        check: Check = importlib.import_module(f"quartet.doctor.{name}").check
        yield name, list(check(place))
