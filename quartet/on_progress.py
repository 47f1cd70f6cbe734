"""Progress callbacks."""

from collections.abc import Callable

OnProgress = Callable[[int, int], None]
"""Callback `(done, total)`; `total` is 0 when unknown."""


def no_progress(*_: object) -> None:
    """Ignore progress: the default of every callback, for callers without a supervisor or a reader."""
