"""The environment host in front of a real browser."""

import asyncio
import socket

import psutil
import pytest

from quartet import config
from quartet.env import make_pool, suite_families
from quartet.env.base import Env, EnvPool
from quartet.env.client import RemoteEnvPool
from quartet.env.deadlines import Deadlines
from quartet.env.environment.bandit import Bandit
from quartet.env.host import EnvHost, run_env_host
from quartet.env.session_pool import SessionPool
from quartet.errors import EnvError, SetupError
from quartet.ledger import Ledger
from quartet.recipe.file import parse_recipe
from quartet.types import Task

SETTINGS = config.Env(name="miniwob", sessions=2, step_timeout_seconds=200.0)
TASK = Task(env="miniwob", family="click-test-2", seed=1)


def kill_the_browser() -> None:
    """SIGKILL for Chromium's main process, and nobody else."""
    (browser,) = [child for child in psutil.Process().children() if "chrom" in child.name()]
    browser.kill()


@pytest.mark.browser
async def test_a_browser_that_dies_costs_one_episode_and_comes_back():
    host = EnvHost(
        make_pool(SETTINGS), name="miniwob", capacity=2, token="token-of-a-test", deadlines=Deadlines.of(SETTINGS)
    )
    await host.start()
    remote = RemoteEnvPool(lambda: [host.url], 2, token="token-of-a-test", request_timeout_seconds=200.0)
    try:
        env, idle = await remote.acquire(), await remote.acquire()
        first = await env.reset(TASK)
        await idle.reset(TASK)
        (picture,) = first.pictures
        assert picture.data.startswith((b"\x89PNG", b"RIFF", b"\xff\xd8")), "a picture survives the transport"
        kill_the_browser()
        with pytest.raises(EnvError, match="EXECUTION_ERROR"):
            await env.step("click [1]")
        again = await env.reset(TASK)
        assert (again.goal, again.text) == (first.goal, first.text)
        assert (await idle.reset(TASK)).text == first.text
    finally:
        await remote.close()
        await host.stop()


def test_the_suite_is_found_by_name():
    families = suite_families(SETTINGS)
    assert len(families) == 24
    assert suite_families(config.Env(name="miniwob")) == families


async def test_a_port_in_use_ends_the_host_with_advice(tmp_path):
    Ledger.create(tmp_path / "run").close()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        data = {
            "name": "port",
            "model": {"path": "none"},
            "env": {"name": "bandit"},
            "runtime": {"env_port": taken.getsockname()[1]},
        }
        with pytest.raises(SetupError, match=r"runtime\.env_port"):
            await run_env_host(parse_recipe(data, "test"), tmp_path / "run", asyncio.Event())


class Hangs(Bandit):
    """A bandit whose sessions never start."""

    def pool(self, env: config.Env) -> EnvPool:
        return HangingPool(self.session, 1)


class HangingPool(SessionPool):
    async def acquire(self) -> Env:
        return await asyncio.get_running_loop().create_future()


async def test_a_first_session_that_never_starts_ends_the_host_with_advice(tmp_path):
    Ledger.create(tmp_path / "run").close()
    env = {"name": f"{__name__}:Hangs", "start_timeout_seconds": 0.1}
    recipe = parse_recipe({"name": "hangs", "model": {"path": "none"}, "env": env}, "test")
    with pytest.raises(SetupError, match=r"within 0\.1 s\n.*env\.start_timeout_seconds"):
        await run_env_host(recipe, tmp_path / "run", asyncio.Event())
