"""Resets that run ahead: more rollouts have a session than may run, and each waits for its turn in its first
observation. A slow reset then delays no engine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from quartet.env.base import Env
from quartet.errors import RecalledError
from quartet.rollout.attempt import Attempt
from quartet.telemetry.activities import WAIT
from quartet.types import Observation, StepResult, Task


class Turnstile:
    """Limit of the number of rollouts that run at the same time."""

    def __init__(self, limit: int) -> None:
        """Let `limit` rollouts run; 0 sets no limit, and resets nothing ahead."""
        self._free = asyncio.Semaphore(limit) if limit else None

    @asynccontextmanager
    async def turn(self, attempt: Attempt, session: Env) -> AsyncIterator[Env]:
        """Reset the session for the attempt's task, wait until a rollout may run, and yield the session.

        The wait ends when a running rollout ends, so it counts as progress and keeps the lease. Raise the errors of the
        reset, and `RecalledError` if the attempt is recalled while it waits: its session is then free for another one.
        """
        if self._free is None:
            yield session
            return
        ahead = ResetAhead(session)
        await ahead.prepare(attempt.lease.task)
        attempt.waits_for_turn = True
        try:
            with attempt.watch.span(WAIT, reason="the end of a running rollout"):
                await attempt.watch.at_work(self._turn_or_recall(attempt, self._free))
            yield ahead
        finally:
            if not attempt.waits_for_turn:
                self._free.release()

    async def _turn_or_recall(self, attempt: Attempt, free: asyncio.Semaphore) -> None:
        turn = asyncio.create_task(self._take_turn(attempt, free))
        recall = asyncio.create_task(attempt.wait_for_recall())
        try:
            await asyncio.wait({turn, recall}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            turn.cancel()
            recall.cancel()
            await asyncio.wait({turn, recall})
        if attempt.waits_for_turn:
            raise RecalledError("the rollout was recalled while it waited for its turn")

    async def _take_turn(self, attempt: Attempt, free: asyncio.Semaphore) -> None:
        """Wait for a turn. The attempt has it from the same tick on, even if it is cancelled before it continues."""
        await free.acquire()
        attempt.waits_for_turn = False


class ResetAhead:
    """Session whose first reset is done before the agent loop requests it."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._ready: Observation | None = None

    async def prepare(self, task: Task) -> None:
        """Start the episode that the first `reset` returns."""
        self._ready = await self._env.reset(task)

    async def reset(self, task: Task) -> Observation:
        ready, self._ready = self._ready, None
        return ready or await self._env.reset(task)

    async def step(self, action: str) -> StepResult:
        return await self._env.step(action)

    async def close(self) -> None:
        await self._env.close()
