"""Cost of the cluster itself: a step of an environment that takes no time, and many sessions of one that takes a
second."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from quartet.env.base import Env
from quartet.env.client import RemoteEnvPool
from quartet.env.host import EnvHost
from quartet.env.session_pool import SessionPool
from quartet.types import Observation, StepResult, Task

TOKEN = "benchmark"  # the host listens on this machine only, while the benchmark runs
TASK = Task(env="waiting", family="waiting", seed=0)
PAGE = "\n".join(f"button number {number} [{number}]" for number in range(1, 40))
"""About a kilobyte, as a page has it."""


class Waiting(Env):
    """Session whose steps take a fixed time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def reset(self, task: Task) -> Observation:
        return Observation(goal="Wait.", text=PAGE)

    async def step(self, action: str) -> StepResult:
        await asyncio.sleep(self._seconds)
        return StepResult(observation=Observation(goal="Wait.", text=PAGE), reward=0.0, terminated=False)

    async def close(self) -> None:
        pass


@asynccontextmanager
async def waiting(sessions: int, seconds: float) -> AsyncIterator[list[Env]]:
    """Give sessions of a host, in episodes."""
    pool = SessionPool(lambda: Waiting(seconds), sessions)
    host = EnvHost(pool, name="waiting", capacity=sessions, token=TOKEN)
    await host.start()
    remote = RemoteEnvPool(lambda: [host.url], sessions, token=TOKEN, request_timeout_seconds=60.0)
    try:
        found = [await remote.acquire() for _ in range(sessions)]
        for one in found:
            await one.reset(TASK)
        yield found
    finally:
        await remote.close()
        await host.stop()


async def overhead_ms(steps: int) -> float:
    """Return the median duration, in milliseconds, of a step that does nothing."""
    async with waiting(1, 0.0) as (session,):
        durations = []
        for _ in range(steps):
            began = time.perf_counter()
            await session.step("wait")
            durations.append(time.perf_counter() - began)
    return round(1000 * statistics.median(durations), 3)


async def share_of_ideal(sessions: int, steps: int, seconds: float = 1.0) -> float:
    """Return the rate of steps of many sessions as a share of the rate without any cost."""

    async def act(session: Env) -> None:
        for _ in range(steps):
            await session.step("wait")

    async with waiting(sessions, seconds) as found:
        began = time.monotonic()
        await asyncio.gather(*map(act, found))
        return round(steps * seconds / (time.monotonic() - began), 4)
