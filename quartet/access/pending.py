"""Limits on the number and the duration of connections that have not sent a complete request.

Neither aiohttp nor uvicorn limits the number of connections or the time to receive a request's headers.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

C = TypeVar("C")
ACCEPT_BACKLOG = 128
MAX_PENDING_CONNECTIONS = 256
"""Maximum number of pending connections. It must exceed `ACCEPT_BACKLOG`, because the server may accept that number of
connections before their handlers run, and can close a connection for a newer one only after its handler has run. It
must be well below 1,024, the usual limit of open files.
"""
REQUEST_TIMEOUT_SECONDS = 10.0
"""Time after which a connection without a complete request is closed."""


class Pending(Generic[C]):
    """Connections of one server that have not sent a complete request; the callback `close` closes a connection."""

    def __init__(self, close: Callable[[C], None]) -> None:
        self._end = close
        self._timers: dict[C, asyncio.TimerHandle] = {}

    def add(self, connection: C) -> None:
        """Start the timeout of a connection. If too many are pending, close the one that has been pending longest."""
        self.admit(connection)
        if len(self._timers) >= MAX_PENDING_CONNECTIONS:
            self.close(next(iter(self._timers)))
        timer = asyncio.get_running_loop().call_later(REQUEST_TIMEOUT_SECONDS, self.close, connection)
        self._timers[connection] = timer

    def admit(self, connection: C) -> None:
        """Stop the timeout: the request has arrived, or the connection is gone."""
        if timer := self._timers.pop(connection, None):
            timer.cancel()

    def close(self, connection: C) -> None:
        """Close a connection."""
        self.admit(connection)
        self._end(connection)

    def close_all(self) -> None:
        """Close all pending connections."""
        for connection in list(self._timers):
            self.close(connection)
