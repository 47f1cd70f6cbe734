"""The listener of a run's servers, under requests that never end and requests of strangers."""

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import ClientSession, web

from quartet.access import local_server, pending
from quartet.access.local_server import LocalServer
from quartet.access.pending import MAX_PENDING_CONNECTIONS
from quartet.access.token import bearer

TOKEN = "token-of-a-test"
HALF_OPEN = 1_100
BEGUN = b"POST /echo HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    app = web.Application()
    app.router.add_route("*", "/echo", echo)
    server = LocalServer(app, token=TOKEN, name="the server", port_setting="a.port")
    try:
        yield await server.start()
    finally:
        await server.stop()


async def half_open(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection whose request has begun and will not end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(BEGUN)
    return reader, writer


@pytest.fixture
def many_files():
    """The attacker is in this process too and needs as many open files as the server would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * HALF_OPEN)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_half_open_requests_do_not_keep_honest_ones_out(many_files, caplog):
    async with serving() as url, ClientSession(headers=bearer(TOKEN)) as http:
        async with http.get(f"{url}/echo") as answer:  # this connection stays open and is used again
            assert answer.status == 200
        attack = [await half_open(url) for _ in range(HALF_OPEN)]
        async with http.get(f"{url}/echo") as answer, ClientSession(headers=bearer(TOKEN)) as newcomer:
            assert answer.status == 200
            async with newcomer.post(f"{url}/echo", json=["hello"]) as other:
                assert await other.json(content_type=None) == ["hello"]
        for reader, writer in attack[: HALF_OPEN - MAX_PENDING_CONNECTIONS]:
            with suppress(ConnectionResetError):
                assert await reader.read() == b""  # the server has closed it
            writer.close()
    assert not caplog.records


async def test_a_request_that_does_not_end_is_closed_after_its_time(monkeypatch):
    monkeypatch.setattr(pending, "REQUEST_TIMEOUT_SECONDS", 0.05)
    async with serving() as url, ClientSession(headers=bearer(TOKEN)) as http:
        reader, _ = await half_open(url)
        assert await reader.read() == b""
        async with http.get(f"{url}/echo") as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    ("headers", "status", "says"),
    [
        ({}, 401, "token"),
        (bearer("another"), 401, "token"),
        (bearer(TOKEN) | {"Host": "evil.example"}, 403, "evil.example"),
        (bearer(TOKEN) | {"Origin": "http://evil.example"}, 403, "evil.example"),
        (bearer(TOKEN) | {"Content-Type": "text/plain"}, 415, "application/json"),
    ],
)
async def test_a_stranger_is_refused_in_words_and_disconnected(headers, status, says):
    async with (
        serving() as url,
        ClientSession() as http,
        http.post(f"{url}/echo", data=b"[]", headers=headers) as answer,
    ):
        assert answer.status == status
        assert says in (await answer.json())["error"]["message"]
        assert answer.headers["Connection"] == "close"


async def test_a_port_in_use_is_explained():
    async with serving() as url:
        second = LocalServer(web.Application(), token=TOKEN, name="the second", port_setting="b.port")
        with pytest.raises(local_server.SetupError, match=r"the second cannot listen.*in use\n.*b\.port"):
            await second.start(int(url.rpartition(":")[2]))
        await second.stop()
