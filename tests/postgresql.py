"""What tests on a real PostgreSQL server need."""

import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from urllib.parse import parse_qs, urlsplit

import pytest

from benchmarks.postgresql_server import server_url as start

needs_postgresql = pytest.mark.postgresql
POLL_SECONDS = 0.05


def server_url() -> str:
    """A server for this whole test run; it fails the test when PostgreSQL is not installed."""
    return start(fsync=False)


class Proxy:
    """A network between clients and a server on a Unix socket; it can be cut without a reset. A context manager."""

    def __init__(self, server: str) -> None:
        self._target = f"{parse_qs(urlsplit(server).query)['host'][0]}/.s.PGSQL.5432"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._peers: dict[socket.socket, socket.socket] = {}
        self._cut, self._closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._forward)
        host, port = self._listener.getsockname()
        self.url = f"postgresql://quartet@{host}:{port}/postgres"

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Nothing passes inside the block, and no connection ends. What was sent meanwhile passes after it."""
        self._cut.set()
        try:
            yield
        finally:
            self._cut.clear()

    def _forward(self) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(self._listener, selectors.EVENT_READ)
            while not self._closed.wait(POLL_SECONDS if self._cut.is_set() else 0):
                if not self._cut.is_set():
                    for key, _ in ready.select(POLL_SECONDS):
                        assert isinstance(key.fileobj, socket.socket)
                        self._pass_on(key.fileobj, ready)
            for end in self._peers:
                end.close()

    def _pass_on(self, source: socket.socket, ready: selectors.BaseSelector) -> None:
        """Accept a client, or forward what one side has sent."""
        if source is self._listener:
            client, server = source.accept()[0], socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            self._peers |= {client: server, server: client}
            ready.register(client, selectors.EVENT_READ)
            ready.register(server, selectors.EVENT_READ)
        elif source in self._peers:
            peer = self._peers[source]
            try:
                data = source.recv(65_536)
                peer.sendall(data)
            except OSError:  # one side has gone away
                data = b""
            if data:
                return
            for end in (source, peer):
                ready.unregister(end)
                del self._peers[end]
                end.close()

    def __enter__(self) -> "Proxy":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._thread.join()
        self._listener.close()
