"""Deadline of a blocking call, and polling until a condition holds."""

import time
from collections.abc import Callable
from typing import TypeVar

from quartet.errors import EnvError

POLL_SECONDS = 0.01
T = TypeVar("T")


class Deadline:
    """Point in time after which a blocking call raises `EnvError`."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._end = seconds, time.monotonic() + seconds

    def left(self, at_most: float = float("inf")) -> float:
        """Return the seconds left, never negative."""
        return max(min(self._end - time.monotonic(), at_most), 0.0)

    def wait(self, condition: Callable[[], T], what: str) -> T:
        """Return the first true result of `condition`. Raise `EnvError`, which names `what`, at the deadline."""
        while not (result := condition()):
            if not self.left():
                raise EnvError(f"{what} did not happen within {self._seconds:g} s", "raise env.reset_timeout_seconds")
            time.sleep(POLL_SECONDS)
        return result
