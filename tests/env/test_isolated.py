"""Sessions in child processes: each fault costs its own episode, and leaves nothing behind."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from quartet import config
from quartet.env import make_pool
from quartet.env.client import RemoteEnv, RemoteEnvPool
from quartet.env.deadlines import Deadlines
from quartet.env.host import EnvHost
from quartet.env.port.session import opened
from quartet.errors import EnvError, EnvFaultError, RewardError, SetupError
from quartet.registry import import_plugins, imported_plugins
from quartet.types import Task
from quartet.web.play.player import Player

pytestmark = pytest.mark.slow
TOKEN = "test"
FAULTS = [
    ("eat memory", "MemoryError|needed more than 400 MB|was ended by"),
    ("never return", r"no answer within|did not end within"),
    ("exit", "ended its process with exit status 3"),
    ("crash", "was ended by SIGSEGV"),
    ("fail", r"Session.step raised ValueError: the sky is down \(.*faulty_environment.py:\d+"),
    ("return garbage", "of type dict, not StepResult"),
]


@pytest.fixture(autouse=True)
def _modules(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(__file__).parent
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))


def task(seed: int = 0) -> Task:
    return Task(env="faulty", family="faults", seed=seed)


@asynccontextmanager
async def hosted(sessions: int = 2, **changes: Any) -> AsyncIterator[RemoteEnvPool]:
    """Sessions of an environment host, as a worker has them."""
    limits = {"session_memory_megabytes": 400, "step_timeout_seconds": 10.0}
    env = config.Env(name="faulty_environment:Faulty", sessions=sessions, **limits | changes)
    host = EnvHost(make_pool(env), name="faulty", capacity=sessions, token=TOKEN, deadlines=Deadlines.of(env))
    await host.start()
    pool = RemoteEnvPool(lambda: [host.url], sessions, token=TOKEN, request_timeout_seconds=60)
    try:
        yield pool
    finally:
        await pool.close()
        await host.stop()
    assert not [child for child in psutil.Process().children() if "isolated.child" in " ".join(child.cmdline())]


async def session_of(pool: RemoteEnvPool) -> RemoteEnv:
    session = await pool.acquire()
    assert isinstance(session, RemoteEnv)
    return session


async def test_each_fault_costs_its_episode_only():
    async with hosted() as pool:
        failing, other = await session_of(pool), await session_of(pool)
        neighbour = (await other.reset(task(7))).text
        for action, message in FAULTS:
            first = (await failing.reset(task())).text
            assert int(first) != os.getpid() and first != neighbour
            kind = EnvFaultError if action in ("fail", "return garbage") else EnvError
            with pytest.raises(kind, match=message):
                await failing.step(action)
            assert (await failing.reset(task(1))).goal == "episode of seed 1"
        assert (await other.step("do nothing")).observation.text == "nothing", "the other episode goes on"
        assert (await other.reset(task(8))).text == neighbour, "a healthy process is used again"


async def test_play_and_compare_have_processes_of_their_own():
    env = config.Env(name="faulty_environment:Faulty", sessions=1, session_memory_megabytes=400)
    player = Player(env)
    await player.begin("faults", 0)
    assert player.episode.observation is not None
    assert int(player.episode.observation.text) != os.getpid()
    await player.close()
    async with opened(env, guarded=True) as session:
        assert int((await session.reset(task())).text) != os.getpid()


async def test_a_reward_of_a_wrong_type_costs_its_episode_only():
    async with hosted(1) as pool:
        session = await session_of(pool)
        for action in ("reward none", "reward beyond floats"):
            await session.reset(task())
            with pytest.raises(RewardError, match="the reward of faulty/faults, seed 0, is"):
                await session.step(action)
        assert (await session.reset(task(1))).goal == "episode of seed 1"


async def test_what_a_session_prints_does_not_disturb_its_answers():
    async with hosted(1) as pool:
        session = await session_of(pool)
        await session.reset(task())
        assert (await session.step("print")).observation.text == "nothing"


@pytest.mark.parametrize("action", ["fork", "fork many"])
async def test_processes_that_a_session_starts_end_with_it(action):
    async with hosted(1) as pool:
        session = await session_of(pool)
        await session.reset(task())
        started = [psutil.Process(int(pid)) for pid in (await session.step(action)).observation.text.split()]
        with pytest.raises(EnvError):
            await session.step("fail")
        await asyncio.to_thread(psutil.wait_procs, started, timeout=60)
        assert not [one for one in started if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


HOST = """
import asyncio
import time
from quartet import config
from quartet.env import make_pool
from quartet.types import Task
from quartet.web.play.player import Player

async def play():
    pool = make_pool(config.Env(name="faulty_environment:Faulty", session_memory_megabytes=400))
    session = await pool.acquire()
    own = (await session.reset(Task(env="faulty", family="faults", seed=0))).text
    print(own, (await session.step("fork many")).observation.text, flush=True)
    time.sleep(600)

asyncio.run(play())
"""


def test_processes_that_a_session_starts_end_with_a_host_that_is_killed():
    with subprocess.Popen([sys.executable, "-c", HOST], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        started = [psutil.Process(int(pid)) for pid in host.stdout.readline().split()]
        host.kill()
    psutil.wait_procs(started, timeout=10)
    left = [one for one in started if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    for one in left:
        one.kill()
    assert len(started) == 5 and not left


async def test_a_process_that_dies_between_two_episodes_is_replaced():
    pool = make_pool(config.Env(name="faulty_environment:Faulty", sessions=1, session_memory_megabytes=400))
    session = await pool.acquire()
    first = psutil.Process(int((await session.reset(task())).text))
    await pool.release(session, healthy=True)
    first.kill()
    await asyncio.sleep(0.5)  # the event loop learns of it
    session = await pool.acquire()
    assert (await session.reset(task())).text != str(first.pid)
    await pool.release(session, healthy=True)
    await pool.close()


async def test_an_environment_that_cannot_be_made_is_an_error_of_the_setup():
    env = config.Env(name="gymnasium", session_memory_megabytes=1000)
    with pytest.raises(SetupError, match="ids"):
        await make_pool(env).acquire()


async def test_a_reward_of_a_plugin_is_known_in_the_process_of_a_session(tmp_path, monkeypatch):
    (tmp_path / "polite.py").write_text(
        "from quartet.env.rewards.base import Reward\nfrom quartet.registry import register\n"
        "@register('reward', 'politeness')\nclass Politeness(Reward):\n"
        "    def score(self, case):\n        return float('please' in case.response)\n"
    )
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"prompt": "{number}"}}\n' for number in range(60)))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("quartet.registry.registered", {})
    monkeypatch.setitem(imported_plugins, "polite", None)  # removed after the test
    import_plugins(["polite"])
    own = {"data": str(tmp_path / "rows.jsonl"), "reward": "politeness"}
    pool = make_pool(config.Env.model_validate({"name": "dataset", "session_memory_megabytes": 1000} | own))
    session = await pool.acquire()
    await session.reset(Task(env="dataset", family="rows", seed=0))
    assert (await session.step("please")).rewards == {"politeness": 1.0}
    await pool.release(session, healthy=True)
    await pool.close()


async def test_a_session_that_cannot_be_made_is_an_error_of_the_setup():
    env = config.Env(name="faulty_environment:NeverStarted", session_memory_megabytes=400)
    with pytest.raises(SetupError, match="no room for another browser"):
        await make_pool(env).acquire()


async def test_a_session_has_started_before_its_first_reset_whose_limit_is_shorter():
    name = "faulty_environment:SlowlyStarted"
    pool = make_pool(config.Env(name=name, session_memory_megabytes=400, step_timeout_seconds=2.0))
    session = await pool.acquire()
    assert (await session.reset(task())).goal == "episode of seed 0"
    await pool.release(session, healthy=False)
