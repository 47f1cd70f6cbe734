"""The server process of the dashboard."""

import errno
import socket

import uvicorn
from starlette.types import ASGIApp

from quartet.errors import SetupError


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises `SetupError` when the port is taken or the host is not ours."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        raise SetupError(
            f"cannot listen on {host}:{port}: {error.strerror}",
            "another `quartet view` may run there: give another --port (0 takes a free one)"
            if taken
            else "give --host an address of this machine, or leave it out",
        ) from error


def serve(app: ASGIApp, listener: socket.socket) -> None:
    """Serve until Ctrl-C or SIGTERM; open connections do not hold it up."""
    config = uvicorn.Config(app, log_level="warning", server_header=False, timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])
