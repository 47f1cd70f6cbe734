"""Connections that have not brought a whole request yet: few, and not for long.

Neither aiohttp nor uvicorn limits the number of connections or the time of a request's headers.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

C = TypeVar("C")
ACCEPT_BACKLOG = 128
MAX_PENDING_CONNECTIONS = 256
"""Must exceed `ACCEPT_BACKLOG`, so that a connection that is closed for a newer one has begun, and be well below 1,024,
the usual limit of open files."""
REQUEST_TIMEOUT_SECONDS = 10.0
"""A connection is closed unless its request has arrived by then."""


class Pending(Generic[C]):
    """The pending connections of one server; `close` ends one."""

    def __init__(self, close: Callable[[C], None]) -> None:
        self._end = close
        self._timers: dict[C, asyncio.TimerHandle] = {}

    def add(self, connection: C) -> None:
        """Begin to wait for a request. Make room by closing the connection that has been pending longest."""
        self.admit(connection)
        if len(self._timers) >= MAX_PENDING_CONNECTIONS:
            self.close(next(iter(self._timers)))
        timer = asyncio.get_running_loop().call_later(REQUEST_TIMEOUT_SECONDS, self.close, connection)
        self._timers[connection] = timer

    def admit(self, connection: C) -> None:
        """Stop waiting: its request has arrived, or it is gone."""
        if timer := self._timers.pop(connection, None):
            timer.cancel()

    def close(self, connection: C) -> None:
        """End a connection."""
        self.admit(connection)
        self._end(connection)

    def close_all(self) -> None:
        """End all that are pending."""
        for connection in list(self._timers):
            self.close(connection)
