"""The environment host and its client: OpenEnv's messages, and who pays when one of them dies."""

import asyncio
import gc
import random
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
import torch
from aiohttp import ClientSession, WSMsgType
from msgspec.structs import replace

from quartet import __version__, config
from quartet.access.token import bearer
from quartet.env import make_pool
from quartet.env.base import Env, acting
from quartet.env.client import RemoteEnvPool
from quartet.env.deadlines import Deadlines
from quartet.env.environment.bandit import BanditEnv
from quartet.env.host import EnvHost, try_out
from quartet.env.own_random import OwnRandom
from quartet.env.protocol import ResetData
from quartet.env.quotas import Quotas
from quartet.env.session_pool import SessionPool
from quartet.errors import EnvError, EnvFaultError, RewardError, SetupError
from quartet.telemetry.record import Recorder
from quartet.telemetry.slices import run_extent
from quartet.telemetry.spans import read_spans
from quartet.types import Observation, Pointer, StepResult, Task, ToolCall, Wait
from quartet.types.frame import Element, Point, Unit
from tests.waiting import until

TOKEN = "token-of-a-test"
AT_ONCE = {"connect_timeout_seconds": 0}
PAGE = "button left [1]\nbutton right [2]"


def task(family="fixed", seed=0, **params) -> Task:
    return Task(env="bandit", family=family, seed=seed, params=params)


class MortalEnv(BanditEnv):
    """A bandit that can no longer be reset once it is dead."""

    dead = False

    async def reset(self, task: Task) -> Observation:
        if self.dead:
            raise EnvError("the browser is gone")
        return await super().reset(task)


class CountingPool(SessionPool):
    """A bandit pool that remembers its sessions and how they came back."""

    def __init__(self, sessions: int) -> None:
        super().__init__(self._make, sessions)
        self.sessions: list[MortalEnv] = []
        self.released: list[bool] = []

    def _make(self) -> Env:
        self.sessions.append(MortalEnv(Counter()))
        return self.sessions[-1]

    async def release(self, env: Env, *, healthy: bool) -> None:
        await super().release(env, healthy=healthy)
        self.released.append(healthy)


@asynccontextmanager
async def hosting(capacity=2, pool=CountingPool, name="bandit", **settings):
    pool = pool(capacity)
    host = EnvHost(pool, name=name, capacity=capacity, token=TOKEN, **settings)
    await host.start()
    try:
        yield host, pool
    finally:
        await host.stop()


@asynccontextmanager
async def connected(host: EnvHost):
    async with ClientSession(headers=bearer(TOKEN)) as http, http.ws_connect(f"{host.url}/ws") as ws:
        yield ws


async def ask(ws, message) -> dict:
    await (ws.send_str(message) if isinstance(message, str) else ws.send_json(message))
    return await ws.receive_json(timeout=60)


async def test_a_session_speaks_openenv_word_for_word():
    async with hosting() as (host, pool), connected(host) as ws:
        reset = {"seed": 3, "episode_id": "e1", "family": "fixed", "env": "bandit", "params": {"turns": 2}}
        shown = {"goal": "Pull an arm.", "text": PAGE}
        running = {"terminated": False, "truncated": False, "info": {}, "actions": [], "rewards": {}}
        assert await ask(ws, {"type": "reset", "data": reset}) == {
            "type": "observation",
            "data": {"observation": shown, "reward": None, "done": False, "metadata": {"quartet": running}},
        }
        assert await ask(ws, {"type": "step", "data": {"action": "click left [1]"}}) == {
            "type": "observation",
            "data": {"observation": shown, "reward": 0.0, "done": False, "metadata": {"quartet": running}},
        }
        state = {"episode_id": "e1", "step_count": 1, "quartet_version": __version__}
        assert await ask(ws, {"type": "state"}) == {"type": "state", "data": state}
        ended = running | {"terminated": True, "info": {"success": True}}
        assert await ask(ws, {"type": "step", "data": {"action": "click left [1]"}}) == {
            "type": "observation",
            "data": {"observation": shown, "reward": 1.0, "done": True, "metadata": {"quartet": ended}},
        }
        assert (await ask(ws, {"type": "step", "data": {"action": "done"}}))["data"]["code"] == "SESSION_ERROR"
        await ws.send_json({"type": "close"})
        assert (await ws.receive(timeout=60)).type is WSMsgType.CLOSE
        await until(lambda: pool.released == [True])


async def test_one_worker_has_more_sessions_than_an_http_client_has_connections_by_default():
    async with hosting(capacity=104) as (host, _):
        pool = RemoteEnvPool(lambda: [host.url], 104, token=TOKEN, **AT_ONCE)
        sessions = [await pool.acquire() for _ in range(104)]
        await asyncio.gather(*(session.reset(task()) for session in sessions))
        await pool.close()


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("{not json", "INVALID_JSON"),
        ({"type": "jump", "data": {}}, "UNKNOWN_TYPE"),
        ({"data": {}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"seed": 1}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"family": "fixed", "seed": "one"}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"family": "fxed"}}, "VALIDATION_ERROR"),
        ({"type": "step", "data": {}}, "VALIDATION_ERROR"),
        ({"type": "step", "data": {"action": "click [1]"}}, "SESSION_ERROR"),
        ({"type": "reset", "data": {"family": "fixed", "params": {"fail_rate": 1.0}}}, "EXECUTION_ERROR"),
    ],
)
async def test_an_error_has_its_code_and_does_not_end_the_session(message, code):
    async with hosting() as (host, _), connected(host) as ws:
        answer = await ask(ws, message)
        assert (answer["type"], answer["data"]["code"]) == ("error", code)
        assert answer["data"]["message"]
        assert (await ask(ws, {"type": "reset", "data": {"family": "fixed"}}))["type"] == "observation"


def answers(value):
    """A method that answers with `value`, or raises it."""

    async def method(self, argument):
        if isinstance(value, BaseException):
            raise value
        return value

    return method


SEEN = Observation(goal="Pull.", text=PAGE)
DONE = StepResult(observation=SEEN, reward=1.0, terminated=True)


@pytest.mark.parametrize(
    ("method", "does", "said"),
    [
        ("reset", answers(ValueError("odd")), r"Broken\.reset raised ValueError: odd \(\S*test_host\.py:\d+, in"),
        ("step", answers(TimeoutError()), r"Broken\.step raised TimeoutError \(\S*test_host\.py"),
        ("step", answers(asyncio.CancelledError()), r"Broken\.step raised CancelledError \(\S*test_host\.py"),
        ("step", answers(replace(DONE, info={"board": {(0, 0): "x"}})), "returned a StepResult of wrong types: "),
        ("reset", answers(None), "returned None of type NoneType, not Observation"),
        ("step", answers((SEEN, 1.0, True)), "of type tuple, not StepResult"),
        ("step", answers(StepResult(observation=SEEN, reward=1.0, terminated="yes")), r"Expected `bool`.*terminated"),
        ("step", answers(StepResult(observation=None, reward=1.0, terminated=True)), r"Expected `object`.*observation"),
        ("step", answers(StepResult(observation=SEEN, reward=1.0, terminated=True, info={"x": SEEN})), ""),
        ("step", answers(StepResult(observation=SEEN, reward=1.0, terminated=True, info={"x": object()})), "object"),
        ("reset", lambda self, task: SEEN, ""),
        ("step", None, r"Broken\.step raised (Attribute|Type)Error"),
    ],
)  # fmt: skip
async def test_a_fault_of_an_environment_is_told_with_its_place_and_the_session_goes_on(method, does, said):
    broken = type("Broken", (BanditEnv,), {method: does})

    async with hosting(capacity=1, pool=lambda sessions: SessionPool(lambda: broken(Counter()), sessions)) as (host, _):
        remote = RemoteEnvPool(lambda: [host.url], 1, token=TOKEN)
        env = await remote.acquire()

        async def play():
            await env.reset(task())
            if method == "step":
                await env.step("click left [1]")

        if not said:
            await play()
        for _ in range(2 if said else 0):
            with pytest.raises(EnvFaultError, match=said) as raised:
                await play()
            assert ("test_host.py" in raised.value.traceback) == ("test_host" in said)
        await remote.close()


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"reward": 10**400}, id="too large"),
        pytest.param({"reward": 10**5000}, id="too large to be written"),
        pytest.param({"reward": torch.tensor(1j)}, id="complex tensor"),
        pytest.param({"rewards": {"a": None}}, id="part that is None"),
        pytest.param({"rewards": {"a": 10**400}}, id="part that is too large"),
        pytest.param({"rewards": {"a": torch.tensor(1j)}}, id="part that is a complex tensor"),
        pytest.param({"rewards": [1.0]}, id="parts without names"),
        pytest.param({"rewards": None}, id="no parts"),
    ],
)
async def test_a_reward_of_a_wrong_type_is_an_error_of_the_reward_and_the_session_goes_on(wrong):
    broken = type("Broken", (BanditEnv,), {"step": answers(replace(DONE, **wrong))})

    async with hosting(capacity=1, pool=lambda sessions: SessionPool(lambda: broken(Counter()), sessions)) as (host, _):
        remote = RemoteEnvPool(lambda: [host.url], 1, token=TOKEN)
        env = await remote.acquire()
        for _ in range(2):
            await env.reset(task())
            with pytest.raises(RewardError, match="the reward of bandit/fixed, seed 0, is"):
                await env.step("click left [1]")
        await remote.close()


async def test_a_reward_whose_conversion_fails_otherwise_is_a_fault_of_the_environment():
    class Odd:
        def __float__(self) -> float:
            raise KeyError("odd")

    broken = type("Broken", (BanditEnv,), {"step": answers(replace(DONE, reward=Odd()))})
    async with hosting(capacity=1, pool=lambda sessions: SessionPool(lambda: broken(Counter()), sessions)) as (host, _):
        remote = RemoteEnvPool(lambda: [host.url], 1, token=TOKEN)
        env = await remote.acquire()
        await env.reset(task())
        with pytest.raises(EnvFaultError, match=r"the reward of Broken\.step raised KeyError"):
            await env.step("click left [1]")
        await remote.close()


async def test_a_host_of_another_version_is_refused_by_naming_both(monkeypatch):
    monkeypatch.setattr("quartet.env.session.__version__", "0.0.9")
    async with hosting() as (host, _):
        remote = RemoteEnvPool(lambda: [host.url], 1, token=TOKEN)
        with pytest.raises(SetupError, match=rf"{host.url} runs Quartet 0\.0\.9, and .* runs Quartet {__version__}"):
            await remote.acquire()
        await until(lambda: host.sessions == 0)
        await remote.close()


@pytest.mark.parametrize(
    ("error", "logged"),
    [
        (KeyError("window"), "Clinging.release raised KeyError: 'window'"),
        (EnvError("the browser hangs"), "a session was not released: the browser hangs"),
    ],
    ids=["exception", "EnvError"],
)
async def test_a_session_that_cannot_be_released_is_logged_and_costs_no_connection(error, logged, caplog):
    class Clinging(CountingPool):
        async def release(self, env: Env, *, healthy: bool) -> None:
            await super().release(env, healthy=healthy)
            raise error

    async with hosting(capacity=1, pool=Clinging) as (host, _), connected(host) as ws:
        for _ in range(2):
            answer = await ask(ws, {"type": "reset", "data": {"family": "fixed", "params": {"fail_rate": 1.0}}})
            assert answer["data"]["code"] == "EXECUTION_ERROR"
    gc.collect()
    assert logged in caplog.text and "never retrieved" not in caplog.text
    assert ("Traceback" in caplog.text) == isinstance(error, KeyError)


async def test_a_step_that_takes_too_long_costs_the_session_its_environment_but_not_the_connection():
    async with hosting(deadlines=Deadlines(reset=0.1)) as (host, pool), connected(host) as ws:
        slow = {"family": "fixed", "params": {"delay_seconds": 60}}
        answer = await ask(ws, {"type": "reset", "data": slow})
        assert answer["data"].pop("message").startswith("reset: no answer within 0.1 s (env.reset_timeout_seconds) (")
        assert answer["data"] == {"code": "EXECUTION_ERROR"}
        assert pool.released == [False]
        assert (await ask(ws, {"type": "step", "data": {"action": "done"}}))["data"]["code"] == "SESSION_ERROR"
        await ask(ws, {"type": "reset", "data": {"family": "fixed"}})
        assert len(pool.sessions) == 2


async def test_an_environment_that_died_between_two_episodes_is_replaced_unnoticed():
    async with hosting() as (host, pool), connected(host) as ws:
        reset = {"type": "reset", "data": {"family": "fixed"}}
        await ask(ws, reset)
        pool.sessions[0].dead = True
        assert (await ask(ws, {"type": "step", "data": {"action": "click [1]"}}))["data"]["done"] is True
        assert (await ask(ws, reset))["type"] == "observation"
        assert pool.released == [False]


async def test_an_environment_that_replaces_a_dead_one_has_the_time_of_a_start():
    class SlowAgain(CountingPool):
        async def acquire(self) -> Env:
            if self.sessions:
                await asyncio.sleep(0.5)
            return await super().acquire()

    async with hosting(pool=SlowAgain, deadlines=Deadlines(reset=0.2)) as (host, pool), connected(host) as ws:
        reset = {"type": "reset", "data": {"family": "fixed"}}
        await ask(ws, reset)
        pool.sessions[0].dead = True
        assert (await ask(ws, reset))["type"] == "observation"
        assert pool.released == [False] and len(pool.sessions) == 2


async def test_environments_are_made_before_a_reset_asks_for_them():
    async with hosting(capacity=1) as (host, pool):
        async with connected(host) as ws:
            await until(lambda: len(pool.sessions) == 1)
            failing = {"family": "fixed", "params": {"fail_rate": 1.0}}
            assert (await ask(ws, {"type": "reset", "data": failing}))["type"] == "error"
            await until(lambda: len(pool.sessions) == 2)
            assert pool.released == [False]
            assert (await ask(ws, {"type": "reset", "data": {"family": "fixed"}}))["type"] == "observation"
            assert len(pool.sessions) == 2, "the one that was made ahead"
        await until(lambda: pool.released == [False, True])


async def test_a_client_that_leaves_while_its_environment_is_made_leaks_none():
    made = asyncio.Event()

    class Slow(CountingPool):
        async def acquire(self) -> Env:
            await made.wait()
            return await super().acquire()

    async with hosting(capacity=1, pool=Slow) as (host, pool):
        async with connected(host) as ws:
            await ask(ws, {"type": "state"})
        assert host.sessions == 1 and not pool.released
        made.set()
        await until(lambda: pool.released == [True] and host.sessions == 0)


async def test_an_environment_whose_start_hangs_costs_one_reset():
    class HangsOnce(CountingPool):
        tries = 0

        async def acquire(self) -> Env:
            self.tries += 1
            if self.tries == 1:
                await asyncio.Event().wait()
            return await super().acquire()

    async with hosting(pool=HangsOnce, deadlines=Deadlines(start=0.2)) as (host, _), connected(host) as ws:
        reset = {"type": "reset", "data": {"family": "fixed"}}
        refusal = await ask(ws, reset)
        assert "start: no answer within 0.2 s (env.start_timeout_seconds)" in refusal["data"]["message"]
        assert (await ask(ws, reset))["type"] == "observation"


async def test_a_start_that_hangs_keeps_the_place_of_a_client_that_left_for_its_limit_only():
    class Hangs(CountingPool):
        async def acquire(self) -> Env:
            return await asyncio.get_running_loop().create_future()

    async with hosting(capacity=1, pool=Hangs, deadlines=Deadlines(start=0.2)) as (host, _):
        async with connected(host) as ws:
            await ask(ws, {"type": "state"})
        assert host.sessions == 1
        await until(lambda: host.sessions == 0)


async def test_a_full_host_says_so_and_a_leaving_client_makes_room():
    async with hosting(capacity=1) as (host, _):
        async with connected(host) as first:
            await ask(first, {"type": "state"})
            async with connected(host) as second:
                refusal = await second.receive_json(timeout=60)
                assert refusal == {
                    "type": "error",
                    "data": {"message": "all 1 sessions are taken", "code": "CAPACITY_REACHED"},
                }
            async with ClientSession(headers=bearer(TOKEN)) as http, http.get(f"{host.url}/health") as health:
                assert await health.json() == {"status": "healthy", "sessions": 1, "capacity": 1, "env": "bandit"}
        await until(lambda: host.sessions == 0)


async def test_a_token_with_a_quota_gets_no_more_sessions_and_leaves_room_for_others():
    async with hosting(capacity=3, quotas=Quotas({"of-alice": 1, "of-bob": 3})) as (host, _):
        alice, bob = (RemoteEnvPool(lambda: [host.url], 3, token=f"of-{name}", **AT_ONCE) for name in ("alice", "bob"))
        session = await alice.acquire()
        assert (await session.reset(task())).text == PAGE
        with pytest.raises(EnvError, match="CAPACITY_REACHED: all 1 sessions of this token are taken"):
            await alice.acquire()
        for _ in range(2):
            await bob.acquire()
        with pytest.raises(EnvError, match="CAPACITY_REACHED: all 3 sessions are taken"):
            await bob.acquire()
        await alice.release(session, healthy=False)
        await until(lambda: host.sessions == 2)
        assert (await (await alice.acquire()).reset(task())).text == PAGE
        eve = RemoteEnvPool(lambda: [host.url], 1, token="of-eve", **AT_ONCE)
        with pytest.raises(EnvError, match="HTTP status 401"):
            await eve.acquire()
        for pool in (alice, bob, eve):
            await pool.close()


async def test_a_session_that_ends_slowly_keeps_its_place_until_it_has_ended():
    """Its client disconnects at once, which cancels the handler of the connection."""
    ends = asyncio.Event()

    class Slow(CountingPool):
        async def release(self, env: Env, *, healthy: bool) -> None:
            await ends.wait()
            await super().release(env, healthy=healthy)

    async with hosting(capacity=1, pool=Slow) as (host, pool):
        async with connected(host) as ws:
            await ask(ws, {"type": "reset", "data": {"family": "fixed", "params": {}}})
        async with connected(host) as ws:
            assert (await ws.receive_json(timeout=60))["data"]["code"] == "CAPACITY_REACHED"
        assert host.sessions == 1
        ends.set()
        await until(lambda: host.sessions == 0)
        assert pool.released == [True]


async def test_a_release_that_hangs_delays_no_answer_and_no_stop():
    """The session keeps its place in the pool, so that no more of them live than the host may have."""
    ends = asyncio.Event()

    class Clinging(CountingPool):
        async def release(self, env: Env, *, healthy: bool) -> None:
            await ends.wait()
            await super().release(env, healthy=healthy)

    async with hosting(capacity=2, pool=Clinging, deadlines=Deadlines(release=0.1)) as (host, pool):
        async with connected(host) as ws:
            failing = {"family": "fixed", "params": {"fail_rate": 1.0}}
            for _ in range(2):
                assert (await ask(ws, {"type": "reset", "data": failing}))["data"]["code"] == "EXECUTION_ERROR"
            await ws.send_json({"type": "reset", "data": {"family": "fixed"}})
            assert len(pool.sessions) == 2 and pool.released == []
            ends.set()
            assert (await ws.receive_json(timeout=60))["type"] == "observation"
            assert len(pool.sessions) == 3 and pool.released == [False, False]
            ends.clear()
        assert host.sessions == 1
    assert pool.released == [False, False], "the host stopped nevertheless"


async def test_a_client_waits_for_the_reason_of_a_late_step_while_its_environment_is_released(monkeypatch):
    class Slow(CountingPool):
        async def release(self, env: Env, *, healthy: bool) -> None:
            await asyncio.sleep(0.5)
            await super().release(env, healthy=healthy)

    monkeypatch.setattr("quartet.env.client.GRACE_SECONDS", 0.1)
    async with hosting(pool=Slow, deadlines=Deadlines(step=0.1)) as (host, _):
        remote = RemoteEnvPool(lambda: [host.url], 1, token=TOKEN, request_timeout_seconds=0.1)
        env = await remote.acquire()
        await env.reset(task())
        monkeypatch.setattr(BanditEnv, "step", lambda *_: asyncio.sleep(60))
        with pytest.raises(EnvError, match=r"step: no answer within 0\.1 s \(env\.step_timeout_seconds\)"):
            await env.step("done")
        await remote.close()


async def test_an_environment_whose_close_hangs_is_named_before_a_host_serves_it():
    never = threading.Event()

    class Clinging(BanditEnv):
        async def close(self) -> None:
            await asyncio.sleep(600)

    class Blocking(BanditEnv):
        def close(self) -> None:  # type: ignore[override]
            never.wait()

    for kind in (Clinging, Blocking):
        pool = SessionPool(lambda kind=kind: kind(Counter()), 1)
        with pytest.raises(SetupError, match=r"close\(\) of a session of the environment has not returned within 0\.1"):
            await try_out(pool, Deadlines(release=0.1))
    never.set()


async def test_a_client_that_dies_in_a_step_gives_its_session_back_at_once():
    async with hosting(deadlines=Deadlines(reset=600)) as (host, pool), connected(host) as ws:
        await ask(ws, {"type": "reset", "data": {"family": "fixed", "params": {}}})
        await ws.send_json({"type": "reset", "data": {"family": "fixed", "params": {"delay_seconds": 600}}})
        async with ClientSession(headers=bearer(TOKEN)) as http, http.get(f"{host.url}/health") as health:
            assert (await health.json())["sessions"] == 1, "the host answers others during a long request"
        ws.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        await until(lambda: host.sessions == 0)
        assert pool.released == [False]


async def test_a_reset_without_an_environment_begins_the_task_of_a_run():
    env = config.Env(name="locks", sessions=1)
    local = await make_pool(env).acquire()
    async with hosting(capacity=1, pool=lambda _: make_pool(env), name="locks") as (host, _), connected(host) as ws:
        for seed in range(5):
            seen = await local.reset(Task(env="locks", family="vault", seed=seed))
            answer = await ask(ws, {"type": "reset", "data": {"family": "vault", "seed": seed}})
            assert answer["data"]["observation"]["goal"] == seen.goal


def test_a_reset_without_a_seed_leaves_the_random_numbers_of_sessions_alone():
    with OwnRandom(0).drawing():
        before = random.getstate()
        drawn = {ResetData().task("bandit", "fixed").seed for _ in range(20)}
        assert random.getstate() == before and len(drawn) > 1


async def test_a_silent_client_loses_its_session_and_its_next_reset_gets_another():
    async with hosting(idle_timeout_seconds=0.5) as (host, pool):  # longer than a reset on a busy machine
        remote = RemoteEnvPool(lambda: [host.url], 1, token=TOKEN)
        env = await remote.acquire()
        await env.reset(task())
        await until(lambda: pool.released == [True])
        assert (await env.reset(task())).text == PAGE
        await until(lambda: pool.released == [True, True])
        with pytest.raises(EnvError, match=r"closed the connection|not connected"):
            await env.step("done")
        await remote.close()


async def test_remote_sessions_behave_like_local_ones():
    async with hosting(capacity=2) as (host, _):
        remote = RemoteEnvPool(lambda: [host.url], 2, token=TOKEN)
        local = await make_pool(config.Env(name="bandit")).acquire()
        env = await remote.acquire()
        for seed in range(3):
            for action in ("click left [1]", "click right [2]", "nonsense"):
                assert await env.reset(task("named", seed)) == await local.reset(task("named", seed))
                assert await env.step(action) == await local.step(action)
        with pytest.raises(EnvError, match="EXECUTION_ERROR: the bandit failed on purpose"):
            await env.reset(task(fail_rate=1.0))
        await remote.release(env, healthy=True)
        assert await remote.acquire() is env
        await remote.release(env, healthy=False)
        await until(lambda: host.sessions == 0)
        await remote.close()


class ActingBandit(BanditEnv):
    """Says in its observation which actions it was sent."""

    async def act(self, actions):
        result = await self.step("click [1]")
        return replace(result, observation=Observation(goal="", text=repr(actions)))


async def test_typed_actions_reach_a_session_as_data_and_a_session_without_them_says_so():
    places = [Point(1.0, 2.0, Unit(1000)), Element("a3", "x")]
    said = [Pointer(gesture="drag", places=places), Wait(), ToolCall(name="f")]
    for kind in (ActingBandit, BanditEnv):
        async with hosting(pool=lambda count, kind=kind: SessionPool(lambda: kind(Counter()), count)) as (host, _):
            remote = RemoteEnvPool(lambda host=host: [host.url], 1, token=TOKEN)
            env = acting(await remote.acquire())
            await env.reset(task())
            if kind is ActingBandit:
                assert (await env.act(said)).observation.text == repr(said)
            else:
                with pytest.raises(EnvError, match="BanditEnv defines no act"):
                    await env.act(said)
            await remote.close()


async def test_sessions_are_dealt_over_the_hosts_and_a_lost_host_is_replaced_by_the_others():
    async with hosting(capacity=4) as (first, _), hosting(capacity=1) as (second, _):
        urls = [first.url, second.url]
        remote = RemoteEnvPool(lambda: urls, 4, token=TOKEN)
        sessions = await asyncio.gather(*(remote.acquire() for _ in range(4)))
        assert (first.sessions, second.sessions) == (3, 1), "the second host is full"
        await second.stop()
        for session in sessions:
            assert (await session.reset(task())).text == PAGE
        assert first.sessions == 4
        await remote.close()


async def test_a_pool_that_shrinks_closes_sessions_when_they_are_released():
    async with hosting(capacity=4) as (host, _):
        remote = RemoteEnvPool(lambda: [host.url], 3, token=TOKEN)
        sessions = [await remote.acquire() for _ in range(3)]
        await remote.release(sessions.pop(), healthy=True)
        await remote.resize(1)
        await until(lambda: host.sessions == 2)
        await remote.release(sessions.pop(), healthy=True)
        await until(lambda: host.sessions == 1)
        waiting = asyncio.create_task(remote.acquire())
        await asyncio.sleep(0)
        assert not waiting.done()
        await remote.resize(2)
        await waiting
        await until(lambda: host.sessions == 2)
        await remote.close()


async def test_the_pool_hands_out_no_more_than_its_capacity():
    async with hosting(capacity=2) as (host, _):
        remote = RemoteEnvPool(lambda: [host.url], 1, token=TOKEN)
        env = await remote.acquire()
        second = asyncio.create_task(remote.acquire())
        await asyncio.sleep(0)
        assert not second.done()
        await remote.release(env, healthy=True)
        assert await second is env
        await remote.close()


async def test_an_unreachable_host_is_an_error_that_says_what_was_tried():
    pool = RemoteEnvPool(list, 1, connect_timeout_seconds=0)
    with pytest.raises(EnvError, match="no environment host has started yet"):
        await pool.acquire()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        pool = RemoteEnvPool(lambda: [url], 1, connect_timeout_seconds=0)
        for _ in range(2):  # a failed attempt keeps no slot
            with pytest.raises(EnvError, match=f"no environment host answers at {url}"):
                await pool.acquire()
        await pool.close()


async def test_a_host_that_accepts_but_never_answers_is_given_up(monkeypatch):
    monkeypatch.setattr("quartet.env.dialer.GRACE_SECONDS", 0.05)
    with socket.socket() as stuck:
        stuck.bind(("127.0.0.1", 0))
        stuck.listen()
        pool = RemoteEnvPool(lambda: [f"http://127.0.0.1:{stuck.getsockname()[1]}"], 1, connect_timeout_seconds=0)
        with pytest.raises(EnvError, match="timeout"):
            await pool.acquire()
        await pool.close()


async def test_a_port_in_use_is_explained():
    async with hosting() as (host, pool):
        with pytest.raises(SetupError, match=r"cannot listen on 127.0.0.1:.*\n.*runtime.env_port"):
            await EnvHost(pool, name="bandit", capacity=1, token=TOKEN).start(int(host.url.rsplit(":", 1)[1]))


SERVE_FOREVER = """
import asyncio
import sys
from quartet import config
from quartet.env import make_pool
from quartet.env.host import EnvHost

async def serve():
    pool = make_pool(config.Env(name="bandit", sessions=2))
    host = EnvHost(pool, name="bandit", capacity=2, token=sys.argv[1])
    await host.start()
    print(host.url, flush=True)
    await asyncio.Event().wait()

asyncio.run(serve())
"""


@contextmanager
def host_processes(count: int) -> Iterator[list[tuple[subprocess.Popen[str], str]]]:
    """Hosts in processes of their own, each with its address."""
    command = [sys.executable, "-c", SERVE_FOREVER, TOKEN]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        yield [(process, process.stdout.readline().strip()) for process in processes if process.stdout]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.slow
async def test_a_killed_host_costs_the_running_episodes_and_its_successor_is_found_on_another_port():
    with host_processes(2) as [(first, first_url), (_, second_url)]:
        urls = [first_url]
        pool = RemoteEnvPool(lambda: [urls[-1]], 2, token=TOKEN)
        playing, resting = await pool.acquire(), await pool.acquire()
        await resting.reset(task())
        await playing.reset(task(turns=2))
        await playing.step("click left [1]")
        first.kill()
        urls.append(second_url)
        with pytest.raises(EnvError, match="closed the connection"):
            await playing.step("click left [1]")
        assert (await resting.reset(task())).text == PAGE, "between two episodes nothing is lost"
        await pool.release(playing, healthy=False)
        playing = await pool.acquire()
        assert (await playing.reset(task())).text == PAGE
        await pool.close()


async def test_every_request_is_a_span_of_its_session(tmp_path):
    recorder = Recorder(tmp_path, "env")
    async with hosting(recorder=recorder) as (host, _), connected(host) as first, connected(host) as second:
        for ws in (first, second):
            await ask(
                ws, {"type": "reset", "data": {"env": "bandit", "family": "fixed", "episode_id": "bandit/fixed/0"}}
            )
            await ask(ws, {"type": "step", "data": {"action": "click left [1]"}})
    recorder.close()
    spans = read_spans(tmp_path, *run_extent(tmp_path)).spans
    assert sorted((span.lane, span.name) for span in spans) == [
        ("session 0", "reset"), ("session 0", "step"), ("session 1", "reset"), ("session 1", "step"),
    ]  # fmt: skip
    assert {span.fields["task"] for span in spans} == {"bandit/fixed/0"}
