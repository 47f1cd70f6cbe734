"""The dashboard's listener, under requests that never end."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from quartet.access import pending
from quartet.web.serve import listen, server

WHOLE = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
BEGUN = WHOLE[:-2]


@asynccontextmanager
async def serving() -> AsyncIterator[socket.socket]:
    listener = listen("127.0.0.1", 0)
    running = server(Starlette(routes=[Route("/", lambda _: PlainTextResponse("hello"))]))
    task = asyncio.create_task(running.serve(sockets=[listener]))
    try:
        yield listener
    finally:
        running.should_exit = True
        await task


async def connected(listener: socket.socket, sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    writer.write(sent)
    return reader, writer


async def closed(reader: asyncio.StreamReader) -> bool:
    """Whether the server ends the connection without an answer."""
    async with asyncio.timeout(60):
        with suppress(ConnectionResetError):
            return await reader.read() == b""
    return True


async def test_a_request_that_does_not_end_is_closed_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "REQUEST_TIMEOUT_SECONDS", 0.2)
    async with serving() as listener:
        for sent in (b"", BEGUN):
            reader, writer = await connected(listener, sent)
            assert await closed(reader)
            writer.close()
        reader, writer = await connected(listener, WHOLE)
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
        writer.write(BEGUN)  # the second request of the same connection
        assert await closed(reader)
        writer.close()


async def test_half_open_requests_do_not_keep_honest_ones_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "MAX_PENDING_CONNECTIONS", 8)
    async with serving() as listener:
        attack = [await connected(listener, BEGUN) for _ in range(20)]
        reader, writer = await connected(listener, WHOLE)
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
        writer.close()
        for reader, _ in attack[:8]:
            assert await closed(reader)
        for _, writer in attack:
            writer.close()


async def test_a_response_may_take_longer_than_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "REQUEST_TIMEOUT_SECONDS", 0.1)

    async def slow(_: object) -> PlainTextResponse:
        await asyncio.sleep(0.5)
        return PlainTextResponse("hello")

    listener = listen("127.0.0.1", 0)
    running = server(Starlette(routes=[Route("/", slow)]))
    task = asyncio.create_task(running.serve(sockets=[listener]))
    reader, writer = await connected(listener, WHOLE)
    assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
    writer.close()
    running.should_exit = True
    await task
