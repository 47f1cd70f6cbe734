"""Progress callback `(done, total)`; `total` is 0 when unknown."""

from collections.abc import Callable

OnProgress = Callable[[int, int], None]


def nobody_watches(done: int, total: int) -> None:
    """Ignore progress: the default callback."""
