"""Virtual time: a queue of future actions. The ledger takes the clock too, so leases and deadlines follow it."""

import heapq
from collections.abc import Callable
from itertools import count


class VirtualClock:
    """Clock that jumps from one action to the next; actions of the same time run in the order of their requests."""

    def __init__(self) -> None:
        self.now = 1.0
        """Seconds since the beginning; above 0, since the ledger takes 0 for no time."""
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def __call__(self) -> float:
        return self.now

    @property
    def pending(self) -> int:
        """Number of future actions."""
        return len(self._queue)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Run `action` in `seconds` from now."""
        heapq.heappush(self._queue, (self.now + seconds, next(self._numbers), action))

    def run(self, done: Callable[[], bool]) -> None:
        """Run actions until `done`. Raises `RuntimeError` if no action is left, because then nothing can happen."""
        while not done():
            if not self._queue:
                raise RuntimeError(f"nothing is left to happen at {self.now:.0f} s of virtual time")
            self.now, _, action = heapq.heappop(self._queue)
            action()
