"""A server in a thread of its own, and clients of raw bytes."""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
TIMEOUT_SECONDS = 60.0
"""For a machine that is busy; a server that takes longer hangs."""


class Background:
    """An event loop in a thread, with one server."""

    def __init__(self, url: str, loop: asyncio.AbstractEventLoop, bugs: list[logging.LogRecord]) -> None:
        self.url, self.port, self._loop = url, int(url.rpartition(":")[2]), loop
        self.bugs = bugs
        """What the server logged with a traceback."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a client's coroutine beside the server. Raises `TimeoutError` when it hangs."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_SECONDS)

    def send(self, request: bytes) -> bytes:
        """Send bytes and no more; return all that comes until the server closes. Raises `TimeoutError`."""
        with socket.create_connection(("127.0.0.1", self.port), TIMEOUT_SECONDS) as connection:
            answer = b""
            try:
                connection.sendall(request)
                connection.shutdown(socket.SHUT_WR)
                while part := connection.recv(65536):
                    answer += part
            except (ConnectionResetError, BrokenPipeError):  # it need not read what it refuses
                pass
            return answer


class _Tracebacks(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextmanager
def in_background(serve: Callable[[], AbstractAsyncContextManager[str]]) -> Iterator[Background]:
    """Run `serve`, which gives a URL, until the end of the block."""
    started, tracebacks = threading.Event(), _Tracebacks()
    made: dict[str, Any] = {}

    async def main() -> None:
        stop = asyncio.Event()
        async with serve() as url:
            made.update(url=url, loop=asyncio.get_running_loop(), stop=stop)
            started.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
    logging.getLogger().addHandler(tracebacks)
    thread.start()
    try:
        assert started.wait(TIMEOUT_SECONDS)
        yield Background(made["url"], made["loop"], tracebacks.records)
    finally:
        logging.getLogger().removeHandler(tracebacks)
        made["loop"].call_soon_threadsafe(made["stop"].set)
        thread.join(TIMEOUT_SECONDS)


def statuses(answer: bytes) -> list[int]:
    """HTTP statuses in what a server sent."""
    lines = [line for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.")]
    return [int(line.split()[1]) for line in lines]
