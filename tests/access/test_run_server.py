"""The listener of a run's servers, under requests that never end and requests of strangers."""

import asyncio
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiohttp import ClientConnectorCertificateError, ClientError, ClientSession, web

from quartet.access import pending
from quartet.access.pending import MAX_PENDING_CONNECTIONS
from quartet.access.place import HOST_NAME, THIS_MACHINE, Place, client_tls, server_tls
from quartet.access.run_server import RunServer
from quartet.access.token import bearer
from quartet.errors import SetupError
from tests.certificates import make_certificate

TOKEN = "token-of-a-test"
HALF_OPEN = 1_100
BEGUN = b"POST /echo HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@asynccontextmanager
async def serving(place: Place = THIS_MACHINE) -> AsyncIterator[str]:
    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    app = web.Application()
    app.router.add_route("*", "/echo", echo)
    server = RunServer(app, token=TOKEN, name="the server", setting="a", place=place)
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
        second = RunServer(web.Application(), token=TOKEN, name="the second", setting="b")
        with pytest.raises(SetupError, match=r"the second cannot listen.*in use\n.*b_port"):
            await second.start(int(url.rpartition(":")[2]))
        await second.stop()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        (bearer("another"), 401),
        (bearer(TOKEN), 200),
        (bearer(TOKEN) | {"Host": "machine-7.example:80"}, 200),
        ({"Host": "machine-7.example:80"}, 401),
        (bearer(TOKEN) | {"Origin": "http://evil.example"}, 403),
    ],
)
async def test_beyond_the_machine_the_token_decides(headers: dict[str, str], status: int) -> None:
    async with serving(Place("0.0.0.0")) as url, ClientSession() as http:
        here = f"http://127.0.0.1:{url.rpartition(':')[2]}/echo"
        async with http.post(here, json=[], headers=headers) as answer:
            assert answer.status == status


def test_without_a_token_nothing_listens_beyond_the_machine() -> None:
    for host in ("0.0.0.0", "::", "machine-7.example", "10.0.0.7"):
        with pytest.raises(SetupError, match=rf"the server would listen on {host} without a token.*\n.*a_host"):
            RunServer(web.Application(), token="", name="the server", setting="a", place=Place(host))


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-machine.invalid"])
async def test_address_of_another_machine_is_explained(host: str) -> None:
    with pytest.raises(SetupError, match=rf"the server cannot listen on {host}:0: .+\n.*set a_host"):
        async with serving(Place(host)):
            pass


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:5"),
        ("::1", "http://[::1]:5"),
        ("0.0.0.0", f"http://{socket.gethostname()}:5"),
        ("::", f"http://{socket.gethostname()}:5"),
    ],
)
def test_url_names_a_host_that_others_can_use(host: str, url: str) -> None:
    assert Place(host).url(5) == url


def test_url_has_the_name_that_a_deployment_gives_the_machine(monkeypatch) -> None:
    monkeypatch.setenv(HOST_NAME, "run-engine-0.run")
    assert Place("0.0.0.0").url(5) == "http://run-engine-0.run:5"
    assert Place("127.0.0.1").url(5) == "http://127.0.0.1:5"


async def test_tls_serves_those_who_trust_the_certificate(tmp_path: Path) -> None:
    ours, other = make_certificate(tmp_path / "ours"), make_certificate(tmp_path / "other")
    place = Place("localhost", server_tls(*map(str, ours)))
    async with serving(place) as url, ClientSession(headers=bearer(TOKEN)) as http:
        assert url.startswith("https://localhost:")
        async with http.get(f"{url}/echo", ssl=client_tls(str(ours.certificate)) or True) as answer:
            assert answer.status == 200
        async with http.get(f"{url}/echo", ssl=client_tls(str(ours.certificate)) or True, headers=bearer("no")) as no:
            assert no.status == 401
        for strange in (client_tls(str(other.certificate)), None):
            with pytest.raises(ClientConnectorCertificateError):
                await http.get(f"{url}/echo", ssl=strange or True)
        with pytest.raises(ClientError):
            await http.get(f"{url}/echo".replace("https", "http"))


def test_unusable_certificate_is_named(tmp_path: Path) -> None:
    ours = make_certificate(tmp_path / "ours")
    with pytest.raises(SetupError, match=r"missing\.pem.*No such file.*\n.*runtime\.tls\.certificate"):
        server_tls(str(tmp_path / "missing.pem"), str(ours.key))
    (tmp_path / "broken.pem").write_text("no certificate")
    with pytest.raises(SetupError, match=r"broken\.pem"):
        server_tls(str(tmp_path / "broken.pem"), str(ours.key))
    with pytest.raises(SetupError, match=r"broken\.pem"):
        client_tls(str(tmp_path / "broken.pem"))
