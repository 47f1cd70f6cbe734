"""Rows of a timeline for what runs side by side: whoever begins takes the first free one."""

import heapq
from collections.abc import Iterator
from contextlib import contextmanager


class Lanes:
    """`session 0`, `session 1`, ...: as many as were ever taken at once."""

    def __init__(self, thing: str) -> None:
        self._thing, self._free, self._count = thing, list[int](), 0

    @contextmanager
    def take(self) -> Iterator[str]:
        """A lane that nobody else has inside the block."""
        if self._free:
            number = heapq.heappop(self._free)
        else:
            number, self._count = self._count, self._count + 1
        try:
            yield f"{self._thing} {number}"
        finally:
            heapq.heappush(self._free, number)
