"""The check `cost`: speed, memory and deadlines of a session."""

import asyncio
import math
import os
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from quartet.env.check.agents import curious
from quartet.env.check.subject import Subject
from quartet.env.checks.base import EnvCheck, Finding, Grade

SECONDS = 2.0
"""Duration of the measurement."""
WARM_EPISODES = 3
"""Episodes before the memory is first read: the first ones import modules and fill caches."""
MAX_BYTES_PER_EPISODE = 1 << 20
"""Memory that an episode may leave behind in this process without a warning."""
MIN_EPISODES = 5
"""Number of episodes from which the growth of memory says anything."""
MAX_BLOCKED_SECONDS = 0.25
"""Time for which a coroutine may block all sessions without a warning."""
TICK_SECONDS = 0.01
MEGABYTE = 1 << 20


class Cost(EnvCheck):
    """Durations of resets and steps, memory left behind by episodes, and coroutines that block all sessions."""

    async def run(self, subject: Subject) -> list[Finding]:
        resets, steps, episodes, started = list[float](), list[float](), 0, 0
        blocked_seconds = math.inf
        deadline = time.monotonic() + SECONDS
        async with subject.session() as session, _blocks() as blocks:
            while time.monotonic() < deadline or episodes <= WARM_EPISODES:
                act = curious(episodes)
                before = time.perf_counter()
                observation = await session.reset(subject.task(subject.families[0], episodes % len(subject.seeds)))
                resets.append(time.perf_counter() - before)
                for _ in range(subject.environment.max_turns(subject.families[0]) or 1):
                    response, before = act(observation), time.perf_counter()
                    result = await (session.step(response) if isinstance(response, str) else session.act(response))
                    steps.append(time.perf_counter() - before)
                    observation = result.observation
                    if result.terminated or result.truncated:
                        break
                # The least over all episodes: a busy machine stops this process once, a coroutine blocks every time.
                blocked_seconds = min(blocked_seconds, max(blocks, default=0.0))
                blocks.clear()
                episodes += 1
                if episodes == WARM_EPISODES:
                    started = resident_bytes()
        growth = (resident_bytes() - started) / (episodes - WARM_EPISODES)
        self.measured = (
            f"reset {1000 * statistics.median(resets):.2g} ms, step {1000 * statistics.median(steps):.2g} ms "
            f"(medians of {len(resets)} and {len(steps)}, with the host's own time), "
            f"{growth / MEGABYTE:+.2f} MB per episode"
        )
        return _findings(subject, max(resets + steps), growth if episodes >= MIN_EPISODES else 0.0, blocked_seconds)


def _findings(subject: Subject, slowest_seconds: float, growth_bytes: float, blocked_seconds: float) -> list[Finding]:
    found, place = [], subject.place("step")
    limit = subject.env.step_timeout_seconds
    if slowest_seconds > limit / 2:
        what = f"a reset or step took {slowest_seconds:.1f} s; after {limit:g} s the rollout ends as error_env"
        found.append(Finding(grade=Grade.WARNING, what=what, where=place, advice="raise env.step_timeout_seconds"))
    if growth_bytes > MAX_BYTES_PER_EPISODE:
        what = f"each episode leaves {growth_bytes / MEGABYTE:.1f} MB behind"
        advice = "release in `reset` and `close` what an episode opened or cached"
        found.append(Finding(grade=Grade.WARNING, what=what, where=place, advice=advice))
    if blocked_seconds > MAX_BLOCKED_SECONDS:
        what = f"a coroutine blocked all sessions for {blocked_seconds:.1f} s"
        advice = "make `reset` and `step` plain functions (`def`), which run in a thread of their session"
        found.append(Finding(grade=Grade.WARNING, what=what, where=place, advice=advice))
    return found


@asynccontextmanager
async def _blocks() -> AsyncIterator[list[float]]:
    """Give a list to which the times are appended for which the event loop did not run."""
    blocks: list[float] = []

    async def tick() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(TICK_SECONDS)
            blocks.append(time.monotonic() - before - TICK_SECONDS)

    ticking = asyncio.create_task(tick())
    try:
        yield blocks
    finally:
        ticking.cancel()
        await asyncio.wait([ticking])


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 where /proc does not exist."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0
