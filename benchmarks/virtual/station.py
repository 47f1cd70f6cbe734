"""Stations with servers and one queue: the processors of environment hosts, or the servers of reward models."""

from collections import deque
from collections.abc import Callable

from benchmarks.virtual.clock import VirtualClock


class Station:
    """Serve jobs in the order of their arrival; with `servers` None every job has a server of its own."""

    def __init__(self, clock: VirtualClock, servers: int | None) -> None:
        self._clock, self._free = clock, servers
        self._waiting: deque[tuple[float, Callable[[], None]]] = deque()

    def serve(self, seconds: float, done: Callable[[], None]) -> None:
        """Serve one job for `seconds`, then call `done`."""
        if self._free is None:
            self._clock.after(seconds, done)
        elif self._free:
            self._free -= 1
            self._clock.after(seconds, lambda: self._finish(done))
        else:
            self._waiting.append((seconds, done))

    def _finish(self, done: Callable[[], None]) -> None:
        if self._waiting:
            seconds, following = self._waiting.popleft()
            self._clock.after(seconds, lambda: self._finish(following))
        elif self._free is not None:
            self._free += 1
        done()
