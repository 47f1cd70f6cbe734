"""What this machine has and lacks: one file per check, one function each.

A check looks at a `Place` (where runs will lie, and their recipe) and yields findings. Add yours to `CHECKS`.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator

from quartet.doctor.base import Finding, Place

CHECKS = (
    *("python", "packages", "compiler", "browser", "fonts", "processors"),
    *("memory", "disk", "gpu", "vllm", "database", "ports", "model", "run"),
)
"""Names of the files, in the order they are looked at."""
CHECKS_OF_A_RUN = ("browser", "fonts", "disk", "vllm", "database", "ports")
"""Those that need a recipe and no torch: `quartet train --dry-run` makes them."""
Check = Callable[[Place], Iterable[Finding]]

__all__ = ["CHECKS", "CHECKS_OF_A_RUN", "Check", "Finding", "Place", "examine"]


def examine(place: Place, names: Iterable[str] = CHECKS) -> Iterator[tuple[str, list[Finding]]]:
    """Make the checks of these names; yields each with what it found, as it is done."""
    for name in names:
        check: Check = importlib.import_module(f"quartet.doctor.{name}").check
        yield name, list(check(place))
