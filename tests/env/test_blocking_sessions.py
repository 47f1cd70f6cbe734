"""Environments whose methods block, never answer, or answer what cannot be sent: the error names the place."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest

from quartet.env.client import RemoteEnvPool
from quartet.env.deadlines import Deadlines
from quartet.env.host import EnvHost
from quartet.env.session_pool import SessionPool
from quartet.errors import EnvError, EnvFaultError
from quartet.types import Observation, StepResult, Task

TASK, BLOCKS = (Task(env="plain", family=family, seed=0) for family in ("answers", "blocks"))
NEVER = threading.Event()


class PlainEnv:
    """An environment that knows nothing of asyncio."""

    def reset(self, task: Task) -> Observation:
        self.thread = threading.get_ident()
        if task.family == "blocks":
            NEVER.wait()
        return Observation(goal="Go.", text="page")

    def step(self, action: str) -> StepResult:
        assert self.thread == threading.get_ident(), "one thread per session"
        assert self.thread != threading.main_thread().ident
        if action == "raise":
            raise ValueError("odd \x00 \ud83d")
        if action == "exit":
            sys.exit(3)
        if action == "end":
            next(iter(()))
        action = "\ud83d" if action == "half" else action
        return StepResult(observation=Observation(goal="Go.", text=action), reward=1.0, terminated=True)

    async def close(self) -> None:
        """Nothing to close."""


class SilentEnv:
    """Waits for ever without blocking."""

    step, close = PlainEnv.step, PlainEnv.close

    async def reset(self, task: Task) -> Observation:
        return await asyncio.get_running_loop().create_future()


@asynccontextmanager
async def sessions(kind: Any, step_timeout_seconds: float = 0.3) -> AsyncIterator[RemoteEnvPool]:
    deadlines = Deadlines(step=step_timeout_seconds, reset=step_timeout_seconds)
    host = EnvHost(SessionPool(kind, 2), name="plain", capacity=2, token="t", deadlines=deadlines)
    await host.start()
    pool = RemoteEnvPool(lambda: [host.url], 2, token="t")
    try:
        yield pool
    finally:
        await pool.close()
        await host.stop()


async def test_a_plain_function_that_blocks_names_its_place_and_delays_no_other_session() -> None:
    async with sessions(PlainEnv) as pool:
        blocked, other = await pool.acquire(), await pool.acquire()
        reset = asyncio.create_task(blocked.reset(BLOCKS))
        await other.reset(TASK)
        assert (await other.step("hello")).observation.text == "hello"
        assert not reset.done()
        with pytest.raises(
            EnvError, match=r"reset: no answer within 0\.3 s .*test_blocking_sessions\.py:\d+, in reset"
        ):
            await reset
        assert (await blocked.reset(TASK)).text == "page", "in a fresh session"


async def test_a_coroutine_that_never_answers_names_its_place() -> None:
    async with sessions(SilentEnv) as pool:
        env = await pool.acquire()
        with pytest.raises(EnvError, match=r"no answer within 0\.3 s .*test_blocking_sessions\.py:\d+, in reset"):
            await env.reset(TASK)


class PlainToTheEnd:
    """Knows nothing of asyncio even when it is closed."""

    reset, step = PlainEnv.reset, PlainEnv.step
    closed_in: ClassVar[list[int]] = []

    def close(self) -> None:
        self.closed_in.append(threading.get_ident())


async def test_a_close_that_is_a_plain_function_is_called_beside_the_event_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with sessions(PlainToTheEnd, step_timeout_seconds=30) as pool:
        assert (await (await pool.acquire()).reset(TASK)).text == "page"
    assert len(PlainToTheEnd.closed_in) == 1 and threading.get_ident() not in PlainToTheEnd.closed_in
    assert not [record for record in caplog.records if record.levelname == "ERROR"], caplog.text


async def test_an_exception_of_a_plain_function_keeps_its_place_and_its_traceback() -> None:
    async with sessions(PlainEnv, step_timeout_seconds=30) as pool:
        env = await pool.acquire()
        await env.reset(TASK)
        with pytest.raises(
            EnvFaultError, match=r"PlainEnv\.step raised ValueError: odd \\u0000 \\ud83d .*, in step\)"
        ) as caught:
            await env.step("raise")
        assert "Traceback" in caught.value.traceback


@pytest.mark.parametrize(("action", "said"), [("end", "StopIteration"), ("exit", "SystemExit: 3")])
async def test_what_a_future_or_the_event_loop_would_swallow_is_an_exception_like_any_other(
    action: str, said: str
) -> None:
    async with sessions(PlainEnv, step_timeout_seconds=30) as pool:
        env = await pool.acquire()
        await env.reset(TASK)
        with pytest.raises(EnvFaultError, match=rf"PlainEnv\.step raised .*{said} \(tests.*, in step\)"):
            await env.step(action)
        assert (await env.reset(TASK)).text == "page"


async def test_a_text_that_cannot_be_sent_is_a_fault_of_the_environment_and_costs_no_connection() -> None:
    async with sessions(PlainEnv, step_timeout_seconds=30) as pool:
        env = await pool.acquire()
        await env.reset(TASK)
        with pytest.raises(EnvError, match=r"PlainEnv\.step returned a StepResult .*surrogates not allowed"):
            await env.step("half")
        assert (await env.reset(TASK)).text == "page"


class LateEnv(PlainToTheEnd):
    """Its constructor blocks until the test lets it go on."""

    go_on: ClassVar = threading.Event()
    closed: ClassVar = threading.Event()

    def __init__(self) -> None:
        self.go_on.wait(30)

    def close(self) -> None:
        self.closed.set()


async def test_a_constructor_that_blocks_reaches_its_limit_and_its_session_is_closed_once_it_is_made() -> None:
    late: Any = LateEnv
    host = EnvHost(
        SessionPool(late, 1), name="late", capacity=2, token="t", deadlines=Deadlines(start=0.3, release=0.1)
    )
    await host.start()
    clients = RemoteEnvPool(lambda: [host.url], 2, token="t")
    try:
        env = await clients.acquire()
        with pytest.raises(EnvError, match=r"start: no answer within 0\.3 s .env\.start_timeout_seconds."):
            await env.reset(TASK)
        LateEnv.go_on.set()
        assert await asyncio.to_thread(LateEnv.closed.wait, 60)
        assert (await env.reset(TASK)).text == "page", "its place is free"
    finally:
        LateEnv.go_on.set()
        await clients.close()
        await host.stop()
