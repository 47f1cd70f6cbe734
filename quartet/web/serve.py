"""HTTP server of the dashboard and of `quartet env play`."""

import asyncio
import errno
import socket
from contextlib import suppress
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from quartet.access.pending import ACCEPT_BACKLOG, Pending
from quartet.errors import SetupError

_ADVICE = {
    errno.EADDRINUSE: "give another --port (0 takes a free one): another server runs there",
    errno.EACCES: "give a --port from 1024 on (0 takes a free one): lower ports need special permission",
}
"""Advice by the error of the socket."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises `SetupError` if the port cannot be used or `host` is no address of this
    machine."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "give --host an address of this machine, or leave it out")
        raise SetupError(f"cannot listen on {host}:{port}: {error.strerror}", advice) from error


class TimedProtocol(H11Protocol):
    """Connection that is closed if its next request does not arrive within `REQUEST_TIMEOUT_SECONDS`."""

    def __init__(self, pending: "Pending[TimedProtocol]", **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._pending = pending

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._pending.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._pending.admit(self)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._pending.admit(self)

    def on_response_complete(self) -> None:
        self._pending.add(self)  # start the time limit of the next request
        super().on_response_complete()

    def end(self) -> None:
        self.transport.close()


def server(app: ASGIApp) -> uvicorn.Server:
    """Return a server, not bound to an event loop until it is run."""
    protocol: Any = partial(TimedProtocol, Pending(TimedProtocol.end))
    config = uvicorn.Config(
        app,
        http=protocol,
        backlog=ACCEPT_BACKLOG,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


def serve(app: ASGIApp, listener: socket.socket) -> None:
    """Serve until Ctrl-C or SIGTERM, then close connections that are still open after one second.

    Ctrl-C is the usual end of these servers and no error, although uvicorn raises it again once it has stopped.
    """
    with suppress(KeyboardInterrupt):
        server(app).run(sockets=[listener])
