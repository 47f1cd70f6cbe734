"""Monitor of one rollout, outside its loop: measure the time per activity and detect progress.

The loop receives a wrapped environment and a wrapped engine. A response of the environment or the engine is progress
and renews the rollout's lease, so a hung rollout loses its lease even if its process is alive. Waits for them also
count as progress, since they end by themselves: a call to a silent engine ends with an `EngineError`
(`engine/http.py`), and a request to an environment ends with an `EnvError` at its own time limit (`env/client.py`).
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

from quartet.engine.base import Engine, GenerateRequest, GenerateResult
from quartet.env.base import Env, restorable
from quartet.env.reward import with_sound_reward
from quartet.errors import ConfigError, EnvError
from quartet.telemetry.record import Recorder
from quartet.types import Observation, StepResult, Task

T = TypeVar("T")


class Watch:
    """Times of one rollout by activity: `reset`, `generate`, `step`, `snapshot`."""

    def __init__(
        self,
        on_progress: Callable[[], None],
        spans: Recorder | None = None,
        *,
        poll_seconds: float,
        lane: str = "",
        trace: str = "",
    ) -> None:
        """Call `on_progress` after every response, and every `poll_seconds` while one is awaited.

        An exception of `on_progress` ends the call in progress. `spans` is None if this rollout's spans are not
        recorded.
        """
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._at_work: Counter[str] = Counter()
        """Number of concurrent runs per activity: a rollout may have several generations at once."""
        self._since: dict[str, float] = {}
        self._on_progress, self._spans, self._lane = on_progress, spans, lane
        self._poll_seconds = poll_seconds
        self.trace = trace if spans else ""
        """Trace of the rollout's spans; empty if they are not recorded."""

    def stuck_in(self, activity: str, seconds: float) -> bool:
        """Return whether the activity has lasted at least this long."""
        return activity in self._since and time.monotonic() - self._since[activity] >= seconds

    @contextmanager
    def doing(self, activity: str) -> Iterator[None]:
        """Time the block, counting overlapping blocks once; report progress only if it succeeds."""
        if not self._at_work[activity]:
            self._since[activity] = time.monotonic()
        self._at_work[activity] += 1
        try:
            with self.span(activity):
                yield
        finally:
            self._at_work[activity] -= 1
            if not self._at_work[activity]:
                self.seconds[activity] += time.monotonic() - self._since.pop(activity)
        self._on_progress()

    async def at_work(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work` while reporting progress; cancellation cancels `work`."""
        task = asyncio.create_task(work)
        try:
            while not (await asyncio.wait({task}, timeout=self._poll_seconds))[0]:
                self._on_progress()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        return task.result()

    def span(self, activity: str, **fields: Any) -> AbstractContextManager[None]:
        """Return a span of this rollout."""
        if self._spans is None:
            return nullcontext()
        return self._spans.span(activity, lane=self._lane, trace=self.trace, **fields)


class WatchedEnv:
    """Environment session timed by a `Watch`."""

    def __init__(self, env: Env, watch: Watch) -> None:
        self._env, self._watch = env, watch

    async def reset(self, task: Task) -> Observation:
        self._task = task
        return await self._ask("reset", self._env.reset(task))

    async def step(self, action: str) -> StepResult:
        """Apply an action. Raises `RewardError` if the reward is not a finite number."""
        return with_sound_reward(await self._ask("step", self._env.step(action)), self._task)

    async def snapshot(self) -> bytes:
        """Store the state of the episode."""
        return await self._ask("snapshot", restorable(self._env).snapshot())

    async def restore(self, task: Task, snapshot: bytes) -> Observation:
        self._task = task
        return await self._ask("reset", restorable(self._env).restore(task, snapshot))

    async def close(self) -> None:
        await self._env.close()

    async def _ask(self, activity: str, work: Coroutine[Any, Any, T]) -> T:
        """Await a request. A `ConfigError` of the environment, as for an unknown task, becomes an `EnvError`, as a host
        answers it."""
        with self._watch.doing(activity):
            try:
                return await self._watch.at_work(work)
            except ConfigError as error:
                raise EnvError(error.what, error.advice) from error


class WatchedEngine:
    """Engine timed by a `Watch`."""

    def __init__(self, engine: Engine, watch: Watch) -> None:
        self._engine, self._watch = engine, watch

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        with self._watch.doing("generate"):
            return await self._watch.at_work(self._engine.generate(request))

    async def abort(self, request_id: str) -> None:
        await self._engine.abort(request_id)

    async def version(self) -> int:
        return await self._engine.version()

    async def close(self) -> None:
        """Do nothing: the engine belongs to the worker, not to one rollout."""
