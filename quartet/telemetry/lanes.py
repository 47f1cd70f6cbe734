"""Timeline rows for concurrent activities: each takes the first free row."""

import heapq
from collections.abc import Iterator
from contextlib import contextmanager


class Lanes:
    """Rows `session 0`, `session 1`, ...: as many as were ever in use at once."""

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
