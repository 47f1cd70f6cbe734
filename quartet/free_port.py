"""Choice of a free TCP port of this machine. Imports nothing of Quartet."""

import socket

HOST = "127.0.0.1"


def free_port() -> int:
    """Return a port of `HOST` on which no process listens; another process may take it before it is used."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]
