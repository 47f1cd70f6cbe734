"""Engine and environment host under requests that nobody would write: no traceback, no hang, and honest requests are
answered afterwards."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession, WSMsgType
from hypothesis import given, settings
from hypothesis import strategies as st

from quartet import config
from quartet.access.token import bearer
from quartet.config import Engine
from quartet.engine.base import GenerateRequest
from quartet.engine.http import HttpEngine
from quartet.engine.server import serve
from quartet.engine.torch_engine import TorchEngine
from quartet.env import make_pool
from quartet.env.client import RemoteEnvPool
from quartet.env.host import EnvHost
from quartet.policy.load import load_model
from quartet.types import Sampling, Task
from tests.fuzz.background import Background, in_background, statuses
from tests.fuzz.mutations import SPLICES, as_json, mutated, spliced

pytestmark = pytest.mark.campaign
TOKEN = "token-of-a-test"
MANY = settings(max_examples=150)
COMPLETION = {
    "model": "main",
    "prompt": [5, 6, 7],
    "max_tokens": 2,
    "temperature": 1.0,
    "top_p": 0.9,
    "top_k": 3,
    "min_tokens": 1,
    "seed": 1,
    "stop_token_ids": [2],
    "stop": ["x"],
    "begun_tokens": 1,
    "conversation": "c",
    "part_seconds": 0.1,
    "sign_seconds": 0.1,
}
RESET = {
    "type": "reset",
    "data": {"env": "bandit", "family": "fixed", "seed": 1, "params": {"turns": 2}, "episode_id": "e"},
}
MESSAGES = [RESET, {"type": "step", "data": {"action": "click left [1]"}}, {"type": "state", "data": {}}]
PATHS = [
    "/",
    "/health",
    "/v1/models",
    "/v1/completions",
    "/abort_requests",
    "/ws",
    "/../x",
    "/%00",
    "*",
    "http://x/",
    "",
]
HEADERS = {
    "Host": ["127.0.0.1", "localhost:1", "evil.example", "", "[", "\x80"],
    "Authorization": [f"Bearer {TOKEN}", f"Bearer {TOKEN}", "Bearer x", "\xff", ""],
    "Content-Type": ["application/json", "text/plain", "multipart/form-data; boundary=x", ";;"],
    "Content-Length": ["0", "2", "100", "-1", "9" * 30, "x"],
    "Transfer-Encoding": ["chunked", "gzip, chunked", "x"],
    "Content-Encoding": ["gzip", "br", "x"],
    "Expect": ["100-continue", "x"],
    "Connection": ["close", "keep-alive", "Upgrade"],
    "Upgrade": ["websocket", "h2c"],
    "Sec-WebSocket-Key": ["dGhlIHNhbXBsZSBub25jZQ==", "x"],
    "Sec-WebSocket-Version": ["13", "99"],
    "X-Quartet-Trace": ["rollout 1.1", "\x01"],
}


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """An HTTP request, most with the token, some with a body, some damaged."""
    method = draw(st.sampled_from(["GET", "POST", "POST", "PUT", "OPTIONS", "BREW", ""]))
    lines = [f"{method} {draw(st.sampled_from(PATHS))} HTTP/1.1"]
    lines += ["Host: 127.0.0.1", f"Authorization: Bearer {TOKEN}"] if draw(st.booleans()) else []
    for name in draw(st.lists(st.sampled_from(sorted(HEADERS)), max_size=4)):
        lines.append(f"{name}: {draw(st.sampled_from(HEADERS[name]))}")
    body = as_json(draw(mutated(COMPLETION)))
    if draw(st.booleans()):
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    request = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
    return draw(spliced(request)) if draw(st.integers(0, 2)) == 0 else request


@pytest.fixture(scope="module")
def engine(bandit_policy) -> Iterator[Background]:
    @asynccontextmanager
    async def serving() -> AsyncIterator[str]:
        loaded = TorchEngine(load_model(bandit_policy), 0, Engine(max_context_tokens=64))
        try:
            async with serve(loaded, token=TOKEN) as url:
                yield url
        finally:
            await loaded.close()

    with in_background(serving) as background:
        yield background


@pytest.fixture(scope="module")
def host() -> Iterator[Background]:
    @asynccontextmanager
    async def serving() -> AsyncIterator[str]:
        pool = make_pool(config.Env(name="bandit", sessions=2))
        host = EnvHost(pool, name="bandit", capacity=2, token=TOKEN)
        await host.start()
        try:
            yield host.url
        finally:
            await host.stop()

    with in_background(serving) as background:
        yield background


async def generate(url: str) -> None:
    client = HttpEngine(lambda: url, token=TOKEN)
    request = GenerateRequest(request_id="honest", prompt_ids=[1], sampling=Sampling(max_tokens=3), stop_token_ids=[])
    assert len((await client.generate(request)).token_ids) == 3
    await client.close()


async def play(url: str) -> None:
    pool = RemoteEnvPool(lambda: [url], 1, token=TOKEN)
    env = await pool.acquire()
    await env.reset(Task(env="bandit", family="fixed", seed=0))
    assert (await env.step("click left [1]")).terminated
    await pool.release(env, healthy=True)
    await pool.close()


@MANY
@given(request=requests())
def test_the_engine_under_any_request(engine, request):
    assert 500 not in statuses(engine.send(request))
    assert not engine.bugs


@MANY
@given(body=st.one_of(mutated(COMPLETION).map(as_json), spliced(as_json(COMPLETION))))
def test_the_engine_under_any_body(engine, body):
    async def post() -> tuple[int, str]:
        headers = bearer(TOKEN) | {"Content-Type": "application/json"}
        async with (
            ClientSession(headers=headers) as http,
            http.post(f"{engine.url}/v1/completions", data=body) as answer,
        ):
            return answer.status, await answer.text()

    status, text = engine.run(post())
    assert status in (200, 400, 404), text
    assert not engine.bugs


def test_the_engine_answers_honest_requests_afterwards(engine):
    engine.run(generate(engine.url))


@MANY
@given(request=requests())
def test_the_environment_host_under_any_request(host, request):
    assert 500 not in statuses(host.send(request))
    assert not host.bugs


@MANY
@given(
    messages=st.lists(
        st.one_of(
            st.sampled_from(MESSAGES).map(as_json),
            st.sampled_from(MESSAGES).flatmap(mutated).map(as_json),
            st.sampled_from(MESSAGES).map(as_json).flatmap(spliced),
        ),
        max_size=4,
    )
)
def test_the_environment_host_under_any_messages(host, messages):
    async def converse() -> None:
        async with ClientSession(headers=bearer(TOKEN)) as http, http.ws_connect(f"{host.url}/ws") as socket:
            for message in messages:
                await socket.send_str(message.decode(errors="replace"))
                answer = await socket.receive()
                if answer.type is not WSMsgType.TEXT:  # after `close`
                    return
                assert answer.json()["type"] in ("observation", "state", "error")

    host.run(converse())
    assert not host.bugs


def test_a_message_nested_too_deeply_is_refused_in_words(host):
    deep = '{"a":' * 5_000
    whole = f'{{"family":"fixed","params":{deep}1{"}" * 5_000}}}'
    messages = [f'{{"type":"reset","data":{data}}}' for data in (deep, whole)]

    async def converse() -> None:
        async with ClientSession(headers=bearer(TOKEN)) as http, http.ws_connect(f"{host.url}/ws") as socket:
            for message in messages:
                await socket.send_str(message)
                assert (await socket.receive_json())["type"] == "error"

    host.run(converse())
    assert not host.bugs


@MANY
@given(frames=SPLICES)
def test_the_environment_host_under_any_frames(host, frames):
    upgrade = (
        f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\nConnection: Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    host.send(upgrade.encode() + frames)
    assert not host.bugs


def test_the_environment_host_answers_honest_clients_afterwards(host):
    host.run(play(host.url))
