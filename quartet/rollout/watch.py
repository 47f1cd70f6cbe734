"""Watches one rollout from outside its loop: where its time goes, and that it moves.

The loop gets its environment and engine wrapped. Each answer of either is progress and renews the rollout's lease: a
rollout that hangs loses it, however alive the process is.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from quartet.env.base import Env
from quartet.observe.record import Recorder
from quartet.rollout.engine.base import Engine, GenerateRequest, GenerateResult
from quartet.types import Observation, StepResult, Task


class Watch:
    """Times of one rollout by activity: `reset`, `generate`, `step`."""

    def __init__(self, on_progress: Callable[[], None], spans: Recorder | None, rollout: int) -> None:
        """`on_progress` is called after every answer; `spans` is None where this rollout's spans are not recorded."""
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.activity = ""
        self._since = time.monotonic()
        self._on_progress, self._spans, self._rollout = on_progress, spans, rollout

    def stuck_in(self, activity: str, seconds: float) -> bool:
        """Has it been doing that for this long?"""
        return self.activity == activity and time.monotonic() - self._since >= seconds

    @contextmanager
    def doing(self, activity: str) -> Iterator[None]:
        """Time the block; progress is told only when it succeeds."""
        self.activity, self._since = activity, time.monotonic()
        try:
            with self._spans.span(activity, rollout=self._rollout) if self._spans else nullcontext():
                yield
        finally:
            self.seconds[activity] += time.monotonic() - self._since
            self.activity = ""
        self._on_progress()


class WatchedEnv:
    """An environment session, watched."""

    def __init__(self, env: Env, watch: Watch) -> None:
        self._env, self._watch = env, watch

    async def reset(self, task: Task) -> Observation:
        with self._watch.doing("reset"):
            return await self._env.reset(task)

    async def step(self, action: str) -> StepResult:
        with self._watch.doing("step"):
            return await self._env.step(action)

    async def close(self) -> None:
        await self._env.close()


class WatchedEngine:
    """An engine, watched."""

    def __init__(self, engine: Engine, watch: Watch) -> None:
        self._engine, self._watch = engine, watch

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        with self._watch.doing("generate"):
            return await self._engine.generate(request)

    async def abort(self, request_id: str) -> None:
        await self._engine.abort(request_id)

    async def version(self) -> int:
        return await self._engine.version()

    async def close(self) -> None:
        """The engine belongs to the worker, not to one rollout."""
