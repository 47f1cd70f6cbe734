"""How long work tells how far it is, to whoever wants to know: what is done, and all there is to do (0: not known)."""

from collections.abc import Callable

OnProgress = Callable[[int, int], None]


def nobody_watches(done: int, total: int) -> None:
    """The default."""
