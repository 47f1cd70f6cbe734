"""Lanes: rows of a timeline for concurrent activities, each of which takes the first free row."""

import heapq
from collections.abc import Iterator
from contextlib import contextmanager


class Lanes:
    """Rows `THING 0`, `THING 1`, ..., for example `session 0`: as many as were ever in use at the same time."""

    def __init__(self, thing: str) -> None:
        self._thing, self._free, self._count = thing, list[int](), 0

    @contextmanager
    def take(self) -> Iterator[str]:
        """Yield a lane that is exclusive to the block."""
        if self._free:
            number = heapq.heappop(self._free)
        else:
            number, self._count = self._count, self._count + 1
        try:
            yield f"{self._thing} {number}"
        finally:
            heapq.heappush(self._free, number)
