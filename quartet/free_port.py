"""Choice of a free TCP port of this machine. Imports nothing of Quartet."""

import socket

HOST = "127.0.0.1"


def free_port(host: str = HOST) -> int:
    """Return a port of `host` on which no process listens; another process may take it before it is used. An empty host
    stands for all addresses of the machine."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]
