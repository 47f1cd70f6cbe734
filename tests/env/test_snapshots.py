"""States of episodes over the host's protocol: stored in one session, begun in another one on another host."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from quartet.env import guarded
from quartet.env.base import RestorableEnv, restorable
from quartet.env.client import RemoteEnvPool
from quartet.env.environment.bandit import BanditEnv
from quartet.env.environment.locks import LOCKS, LocksEnv, code, row, solution
from quartet.env.host import EnvHost
from quartet.env.protocol import MAX_SNAPSHOT_BYTES
from quartet.env.session_pool import SessionPool
from quartet.errors import EnvError, EnvFaultError
from quartet.types import Observation, StepResult, Task


@asynccontextmanager
async def remote(session: Any) -> AsyncIterator[RestorableEnv]:
    """A session of a host of its own."""
    host = EnvHost(SessionPool(session, 1), name="locks", capacity=1, token="t")
    await host.start()
    pool = RemoteEnvPool(lambda: [host.url], 1, token="t")
    try:
        env = await pool.acquire()
        yield restorable(env)
        await pool.release(env, healthy=True)
    finally:
        await pool.close()
        await host.stop()


def wrong_press(task: Task) -> str:
    return f"click [{code(task.family)[row(task)[1]] % LOCKS[task.family].buttons + 1}]"


@pytest.mark.parametrize("family", [family for family, lock in LOCKS.items() if lock.decisive == "all"])
async def test_a_lock_goes_on_from_a_stored_state_in_any_session(family: str) -> None:
    task = Task(env="locks", family=family, seed=1)
    right, env, other = solution(task), LocksEnv(), LocksEnv()
    for actions in ([], right[:1], [right[0], wrong_press(task)]):
        shown = await env.reset(task)
        for action in actions:
            shown = (await env.step(action)).observation
        assert await other.restore(task, await env.snapshot()) == shown
        for action in right[len(actions) :]:
            assert await env.step(action) == await other.step(action)


async def test_a_state_travels_from_host_to_host() -> None:
    task = Task(env="locks", family="chain", seed=1)
    first, *others = solution(task)
    async with remote(LocksEnv) as env, remote(LocksEnv) as other:
        with pytest.raises(EnvError, match="no episode is running"):
            await env.snapshot()
        await env.reset(task)
        shown = (await env.step(first)).observation
        state = await env.snapshot()
        assert await other.restore(task, state) == shown
        assert [(await other.step(action)).terminated for action in others] == [False, True]
        assert await other.restore(task, state) == shown, "as often as wanted"
        with pytest.raises(EnvFaultError, match=r"LocksEnv\.restore raised"):
            await other.restore(task, b"nothing")
        assert (await other.reset(task)).text == f"heading {row(task)[0]}", "in a fresh session"


class Plain:
    """Plain functions, and a state of any size."""

    def reset(self, task: Task) -> Observation:
        self.state = bytes(task.seed)
        return Observation(goal="Go.", text="page")

    def step(self, action: str) -> StepResult:
        return StepResult(observation=Observation(goal="Go.", text=action), reward=1.0, terminated=True)

    def snapshot(self) -> bytes:
        return self.state

    def restore(self, task: Task, snapshot: bytes) -> Observation:
        self.state = snapshot
        return Observation(goal="Go.", text=f"{len(snapshot)} bytes")

    async def close(self) -> None:
        """Nothing to close."""


async def test_the_largest_state_travels_and_a_larger_one_is_a_fault_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with remote(Plain) as env:
        task = Task(env="plain", family="any", seed=MAX_SNAPSHOT_BYTES)
        await env.reset(task)
        state = await env.snapshot()
        assert (await env.restore(task, state)).text == f"{MAX_SNAPSHOT_BYTES} bytes"
        monkeypatch.setattr(guarded, "MAX_SNAPSHOT_BYTES", 100)
        await env.reset(replace(task, seed=101))
        with pytest.raises(EnvFaultError, match=r"Plain\.snapshot returned 101 bytes; a state may have at most 100:"):
            await env.snapshot()


async def test_a_state_that_restores_to_nothing_is_a_fault_of_the_environment() -> None:
    """A host that dies is an error of another kind, after which the episode is tried again."""

    class Forgetful(Plain):
        def restore(self, task: Task, snapshot: bytes) -> Any:
            return None

    async with remote(Forgetful) as env:
        with pytest.raises(EnvFaultError, match=r"Forgetful\.restore returned None"):
            await env.restore(Task(env="plain", family="any", seed=1), b"state")


async def test_a_session_without_states_says_what_is_missing() -> None:
    async with remote(lambda: BanditEnv(Counter())) as env:
        await env.reset(Task(env="bandit", family="fixed", seed=0))
        with pytest.raises(EnvError, match=r"BanditEnv defines no snapshot\(\) and restore\(\)"):
            await env.snapshot()
