"""OpenEnv both ways: its servers as an environment, and our host for its clients. Its package is the other side."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from quartet import config
from quartet.access.token import bearer
from quartet.env import make_environment, make_pool
from quartet.env.base import acting
from quartet.env.check.run import check_environment
from quartet.env.client import RemoteEnvPool
from quartet.env.deadlines import Deadlines
from quartet.env.host import EnvHost
from quartet.env.openenv.actions import FieldReader
from quartet.env.openenv.session import OpenEnvSession
from quartet.env.session_pool import SessionPool
from quartet.errors import ConfigError, EnvError, RewardError
from quartet.free_port import free_port
from quartet.types import Outcome, Task, ToolCall

SERVER = Path(__file__).with_name("openenv_server.py")


def session(url: str, **settings: object) -> OpenEnvSession:
    made = make_environment(config.Env(name="openenv", url=url, **settings)).session()
    assert isinstance(made, OpenEnvSession)
    return made


def task(seed: int = 0, family: str = "episodes") -> Task:
    return Task(env="openenv", family=family, seed=seed)


@pytest.fixture
def serve() -> Iterator[Callable[[str], str]]:
    """Start a server of the package, and return its address when it answers."""
    pytest.importorskip("openenv", reason="`make test-adapters` installs it")
    with ExitStack() as stack:

        def start(kind: str) -> str:
            port = free_port()
            server = stack.enter_context(subprocess.Popen([sys.executable, str(SERVER), kind, str(port)]))
            stack.callback(server.kill)
            while server.poll() is None:
                try:
                    urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
                except OSError:
                    time.sleep(0.1)
                else:
                    break
            return f"http://127.0.0.1:{port}"

        yield start


@pytest.fixture
def served(monkeypatch) -> Iterator[str]:
    """Serve the bandit with `quartet env serve`, and give its address."""
    monkeypatch.setenv("TOKEN_OF_A_TEST", "secret")
    command = [sys.executable, "-m", "quartet", "env", "serve", "bandit", "fixed", "--token-variable"]
    with subprocess.Popen([*command, "TOKEN_OF_A_TEST"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()
        assert "secret" not in server.stdout.read(), "the user's own token is not printed"
    assert server.returncode == 0


@pytest.mark.slow
async def test_an_environment_that_a_command_serves_is_played_as_an_environment_of_openenv(served):
    env, unknown = session(served, token_variable="TOKEN_OF_A_TEST", shown=["text"]), session(served)
    seen = await env.reset(task())
    result = await env.step("click left [1]")
    await env.close()
    with pytest.raises(EnvError, match="401"):
        await unknown.reset(task())
    assert seen.text == "button left [1]\nbutton right [2]"
    assert (result.reward, result.terminated) == (1.0, True)


@pytest.mark.slow
async def test_a_family_that_the_command_does_not_serve_is_refused(served):
    pool = RemoteEnvPool(lambda: [served], 1, token="secret")
    env = await pool.acquire()
    with pytest.raises(EnvError, match=r"'named' is not served here: .*fixed"):
        await env.reset(Task(env="bandit", family="named", seed=0))
    assert (await env.reset(Task(env="bandit", family="fixed", seed=0))).goal
    await pool.release(env, healthy=True)
    await pool.close()


def test_the_schema_says_how_a_response_becomes_an_action():
    text, count = {"type": "string"}, {"type": "integer"}
    assert FieldReader({"properties": {"code": text, "metadata": {}}}, "").read("1 + 1") == {"code": "1 + 1"}
    optional = FieldReader({"properties": {"code": text, "limit": count}, "required": ["code"]}, "")
    assert optional.read("{}") == {"code": "{}"} and optional.usage == ""
    several = FieldReader({"properties": {"by": count, "why": text}, "required": ["by"]}, "")
    assert several.usage == "a JSON object with by (integer), why (string, optional)"
    assert several.read('I add {"by": 2, "why": "so"} now') == {"by": 2, "why": "so"}
    assert FieldReader({"properties": {"by": count}}, "by").read("7") == {"by": "7"}


@pytest.mark.campaign
async def test_a_server_of_the_package_is_played_by_text(serve):
    env = session(serve("guess"), tasks={"two": {"limit": 2}, "ten": {}})
    assert (await env.reset(task(family="two"))).text == "Guess a number below 2."
    results = [await env.step(guess) for guess in ("one?", "5")]
    assert [(result.reward, result.observation.text) for result in results] == [(0.0, "no number"), (0.0, "wrong")]
    results = [await env.step(guess) for guess in ("0", "1")]
    assert max(result.reward for result in results) == 1.0
    await env.reset(task(family="two"))
    with pytest.raises(RewardError, match="openenv/two/0"):
        await env.step("99")
    with pytest.raises(EnvError, match="the server's own fault"):
        await env.step("crash")
    with pytest.raises(ConfigError, match="ten"):
        await env.reset(task(family="tenn"))
    await env.close()
    with pytest.raises(EnvError, match="reset"):
        await env.step("1")


@pytest.mark.campaign
async def test_a_server_of_the_package_is_played_by_json(serve):
    env = session(serve("count"), shown=["text"])
    seen = await env.reset(task())
    assert seen.goal == "Write a JSON object with by (integer), reason (string, optional)." and seen.text == "count: 0"
    wrong, invalid = await env.step("three"), await env.step('{"by": "many"}')
    assert (wrong.actions[0].outcome, invalid.actions[0].outcome) == (Outcome.PARSE_ERROR, Outcome.REFUSED)
    assert "integer" in invalid.observation.error and invalid.observation.text == "count: 0"
    result = await env.step('{"by": 3}')
    assert result.terminated and result.reward == 1.0
    await env.close()


@pytest.mark.campaign
async def test_the_tools_of_a_server_are_tools_of_the_policy(serve):
    env = session(serve("shop"))
    seen = await env.reset(task())
    assert [tool.function.name for tool in seen.tools] == ["sell"]
    result = await acting(env).act([ToolCall(name="sell", arguments={"count": 9}), ToolCall(name="steal")])
    assert [record.outcome for record in result.actions] == [Outcome.REFUSED] * 2
    assert "only 3 apples" in result.observation.messages[0].content and result.reward == 0.0
    assert (await env.step("Sold.")).observation.error == "no action: write a call of a tool"
    result = await env.step('call sell {"count": 3}')
    assert result.observation.messages[0].content == "0 left" and result.terminated and result.reward == 1.0
    await env.close()


@pytest.mark.campaign
async def test_the_client_of_the_package_plays_on_our_host():
    client = pytest.importorskip(
        "openenv.core.generic_client", reason="`make test-adapters` installs it"
    ).GenericEnvClient
    environment = make_environment(config.Env(name="bandit"))
    pool = SessionPool(environment.session, 2)
    host = EnvHost(
        pool, name="bandit", capacity=2, token="t", deadlines=Deadlines(step=60, reset=60), families=["fixed"]
    )
    await host.start()
    async with client(base_url=host.url, headers=bearer("t")) as env:
        seen = await env.reset()
        assert seen.observation["goal"] == "Pull an arm." and seen.reward is None and not seen.done
        result = await env.step({"action": "click left [1]"})
        assert (result.reward, result.done) == (1.0, True)
        assert result.metadata["quartet"]["info"] == {"success": True}
        again = await env.reset(family="fixed", seed=3, episode_id="e3")
        assert again.observation == seen.observation
        assert (await env.state())["episode_id"] == "e3"
    await asyncio.to_thread(_sync_client_plays, client, host.url)
    await host.stop()


def _sync_client_plays(client, url: str) -> None:
    with client(base_url=url, headers=bearer("t")).sync() as env:
        env.reset(seed=1)
        assert env.step({"action": "click left [1]"}).done


@pytest.mark.campaign
async def test_a_server_of_the_package_passes_all_checks(serve, monkeypatch):
    monkeypatch.setattr("quartet.env.checks.cost.SECONDS", 0.05)
    for kind in ("count", "shop"):
        env = config.Env(name="openenv", sessions=2, url=serve(kind), turn_limit=6)
        results = await check_environment(env, range(1), lambda _: None)
        assert [result for result in results if not result.passed] == []


async def _play_for_ever(request: web.Request) -> web.WebSocketResponse:
    """Answer every request, and close a connection whose client does not answer a ping within 0.25 s."""
    socket = web.WebSocketResponse(heartbeat=0.5)
    await socket.prepare(request)
    async for _ in socket:
        await socket.send_json({"type": "observation", "data": {"observation": {"text": "on"}, "reward": 1.0}})
    return socket


async def _schema(_: web.Request) -> web.Response:
    return web.json_response({"action": {"properties": {"code": {"type": "string"}}}})


@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [0, 600])
async def test_a_policy_may_think_for_longer_than_a_server_waits_for_a_pong(megabytes):
    app = web.Application()
    app.add_routes([web.get("/ws", _play_for_ever), web.get("/schema", _schema)])
    async with TestServer(app) as server:
        url = str(server.make_url("")).rstrip("/")
        pool = make_pool(config.Env(name="openenv", url=url, session_memory_megabytes=megabytes))
        env = await pool.acquire()
        await env.reset(task())
        await asyncio.sleep(2)
        assert (await env.step("1 + 1")).observation.text == "on"
        await pool.release(env, healthy=False)
        await pool.close()
