"""Session of an environment host: convert requests to calls of the environment, and failures to error codes."""

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from quartet import __version__
from quartet.env.base import Env, EnvPool, acting, restorable
from quartet.env.deadlines import Deadlines
from quartet.env.protocol import (
    ErrorCode,
    ErrorData,
    Message,
    ObservationData,
    ResetData,
    SnapshotData,
    StateData,
    StepData,
    encode,
)
from quartet.errors import ConfigError, EnvError, EnvFaultError, QuartetError, RewardError, nearest
from quartet.fault import place_of
from quartet.telemetry.displays import Displays
from quartet.telemetry.record import Recorder
from quartet.types import Observation

LOG = logging.getLogger(__name__)
T = TypeVar("T")
_LIMITS = {"start": "start", "reset": "reset", "step": "step", "snapshot": "step"}
"""Time limit of each activity: a field of `Deadlines`, and the setting `env.LIMIT_timeout_seconds`."""


class RefusedError(Exception):
    """A request that is answered with an error; the session continues."""

    def __init__(self, code: ErrorCode, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.data = ErrorData(message=message, code=code, **fields)


class HostedSession:
    """One session of a client. It acquires an environment ahead of the first reset (`prepare`), and another one after a
    failure."""

    def __init__(
        self,
        pool: EnvPool,
        deadlines: Deadlines,
        recorder: Recorder | None = None,
        lane: str = "",
        displays: Displays | None = None,
        families: Sequence[str] = (),
        env_name: str = "",
    ) -> None:
        """Make a session without an environment. With a recorder, every request is recorded as a span in the row `lane`
        of the timeline; with `displays`, its observations are shown under that name. With `families`, other ones are
        refused, and a reset without a family starts a task of the first. One without an environment is of `env_name`,
        as in a run, since environments draw tasks from `Task.key`."""
        self._pool, self._deadlines = pool, deadlines
        self._families, self._env_name = families, env_name
        self._recorder, self._lane, self._trace = recorder, lane, ""
        self._displays = displays
        self._env: Env | None = None
        self._ahead: asyncio.Task[Env] | None = None
        self._releases: set[asyncio.Task[None]] = set()
        self._busy, self._is_new = False, True
        self._in_episode = False
        self._state = StateData(episode_id="", step_count=0, quartet_version=__version__)

    def prepare(self) -> None:
        """Begin to acquire an environment, so that the next reset does not wait for its start."""
        if self._env is None and self._ahead is None:
            self._ahead = asyncio.create_task(self._pool.acquire())

    async def ready(self) -> None:
        """Wait for the environment. Raise `RefusedError` if it cannot be made, or its start exceeds its limit."""
        await self._bounded("start", self._acquire())

    async def answer(self, text: str) -> str | None:
        """Return the answer to one message, or None for the message `close`."""
        try:
            message = msgspec.json.decode(text, type=Message)
            if message.type == "close":
                return None
            return await self._answer(message)
        except RefusedError as refusal:
            return encode("error", refusal.data)
        except msgspec.ValidationError as error:
            return encode("error", ErrorData(message=str(error), code=ErrorCode.VALIDATION_ERROR))
        except (msgspec.DecodeError, RecursionError) as error:  # or brackets nested too deeply
            return encode("error", ErrorData(message=str(error), code=ErrorCode.INVALID_JSON))

    async def close(self) -> None:
        """Release the environment, and wait for every release; it counts as unhealthy if a request was in flight."""
        self._begin_release()
        await asyncio.gather(*self._releases)

    async def _discard(self) -> None:
        """Release the environment. A release that exceeds its limit continues beside the session."""
        release = self._begin_release()
        if not (await asyncio.wait([release], timeout=self._deadlines.release))[0]:
            seconds = self._deadlines.release
            LOG.warning("a session is not released after %g s: its place stays taken until it is", seconds)

    def _begin_release(self) -> asyncio.Task[None]:
        if self._displays is not None:
            self._displays.remove(self._lane)
        release = asyncio.create_task(self._release(self._ahead, self._env, healthy=not self._busy))
        self._ahead = self._env = None
        self._releases.add(release)
        release.add_done_callback(self._releases.discard)
        return release

    async def _release(self, ahead: asyncio.Task[Env] | None, env: Env | None, *, healthy: bool) -> None:
        """Release an environment, and one that is still being acquired once it has been made; a start that exceeds its
        limit is cancelled."""
        if ahead is not None:
            if not (await asyncio.wait([ahead], timeout=self._deadlines.start))[0]:
                ahead.cancel()
                await asyncio.wait([ahead])
            if not ahead.cancelled() and ahead.exception() is None:
                await self._pool.release(ahead.result(), healthy=True)
        if env is not None:
            await self._pool.release(env, healthy=healthy)

    async def _answer(self, message: Message) -> str:
        match message.type:
            case "reset":
                return encode("observation", await self._reset(msgspec.json.decode(message.data, type=ResetData)))
            case "step":
                return encode("observation", await self._step(msgspec.json.decode(message.data, type=StepData)))
            case "snapshot":
                return encode("snapshot", await self._snapshot())
            case "state":
                return encode("state", self._state)
            case unknown:
                known = "reset, step, snapshot, state or close"
                raise RefusedError(ErrorCode.UNKNOWN_TYPE, f"unknown message type {unknown!r}: send {known}")

    async def _reset(self, data: ResetData) -> ObservationData:
        self._in_episode, self._trace = False, data.trace
        if self._families and data.family and data.family not in self._families:
            advice = nearest(data.family, self._families)
            raise RefusedError(ErrorCode.VALIDATION_ERROR, f"family {data.family!r} is not served here: {advice}")
        episode_id = data.episode_id or ""
        await self.ready()
        try:
            observation = await self._call("reset", self._begin(data), task=episode_id)
        except RefusedError as refusal:
            if self._is_new or not isinstance(refusal.__cause__, EnvError):
                raise
            # The environment died since the last episode. Another one, with its own time to start, loses no episode.
            await self.ready()
            observation = await self._call("reset", self._begin(data), task=episode_id)
        self._in_episode, self._is_new = True, False
        self._state = structs.replace(self._state, episode_id=episode_id, step_count=0)
        self._show(observation)
        return ObservationData(observation=observation)

    async def _acquire(self) -> None:
        """Wait for the environment that `prepare` began to acquire, unless the session has one."""
        if self._env is None:
            self._is_new = True
            self.prepare()
            assert self._ahead is not None
            await asyncio.wait([self._ahead])  # which does not cancel it
            ahead, self._ahead = self._ahead, None
            self._env = ahead.result()

    async def _begin(self, data: ResetData) -> Observation:
        """Begin an episode, in a stored state if the client sends one."""
        assert self._env is not None
        task = data.task(self._env_name, next(iter(self._families), ""))
        if data.snapshot is None:
            return await self._env.reset(task)
        return await restorable(self._env).restore(task, data.snapshot)

    async def _step(self, data: StepData) -> ObservationData:
        env = self._running()
        step = env.step(data.action) if data.actions is None else acting(env).act(data.actions)
        result = await self._call("step", step, task=self._state.episode_id)
        self._state.step_count += 1
        self._in_episode = not (result.terminated or result.truncated)
        self._show(result.observation)
        return ObservationData.of_step(result)

    def _show(self, observation: Observation) -> None:
        if self._displays is not None:
            task, turn = self._state.episode_id, self._state.step_count
            self._displays.show(
                self._lane, observation, trace=self._trace, task=task, turn=turn, ended=not self._in_episode
            )

    async def _snapshot(self) -> SnapshotData:
        stored = restorable(self._running()).snapshot()
        return SnapshotData(await self._call("snapshot", stored, task=self._state.episode_id))

    def _running(self) -> Env:
        if self._env is None or not self._in_episode:
            raise RefusedError(ErrorCode.SESSION_ERROR, "no episode is running: send reset first")
        return self._env

    async def _call(self, activity: str, call: Awaitable[T], *, task: str) -> T:
        """Await a call of the environment within its time limit, as a span of the timeline."""
        with self._span(activity, task):
            return await self._bounded(activity, call)

    async def _bounded(self, activity: str, call: Awaitable[T]) -> T:
        """Await a call within the limit of its activity. After any error except `ConfigError` the environment is
        released, and another one is acquired ahead."""
        self._busy = True
        try:
            async with asyncio.timeout(getattr(self._deadlines, _LIMITS[activity])):
                result = await call
        except ConfigError as error:
            # The client requested a task that does not exist; the environment is healthy.
            self._busy = False
            raise RefusedError(ErrorCode.VALIDATION_ERROR, str(error)) from error
        except (QuartetError, TimeoutError) as error:
            if self._ahead is not None:
                self._ahead.cancel()  # its start took too long, and may never end
            await self._discard()
            self._busy = False
            self.prepare()
            code = ErrorCode.REWARD_ERROR if isinstance(error, RewardError) else ErrorCode.EXECUTION_ERROR
            what = str(error) or self._late(activity, error)
            fault = {"fault": True, "traceback": error.traceback} if isinstance(error, EnvFaultError) else {}
            raise RefusedError(code, what, **fault) from error
        self._busy = False
        return result

    def _late(self, activity: str, error: BaseException) -> str:
        """Return the description of a request that took too long, with the place in its code at the timeout."""
        cancelled = error.__cause__
        frames = traceback.extract_tb(cancelled.__traceback__) if cancelled else []
        place = str(cancelled or "") or place_of(frames).strip()
        limit = _LIMITS[activity]
        seconds = getattr(self._deadlines, limit)
        return f"{activity}: no answer within {seconds:g} s (env.{limit}_timeout_seconds) {place}".rstrip()

    def _span(self, activity: str, task: str) -> AbstractContextManager[None]:
        if self._recorder is None:
            return nullcontext()
        return self._recorder.span(activity, lane=self._lane, trace=self._trace, task=task)
