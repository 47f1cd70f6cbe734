"""Sessions of untrusted environments: exceptions and invalid results become `EnvError`s that name the place in the
code. Quartet's own errors pass."""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from quartet.env.base import Env, EnvPool, acting, restorable
from quartet.env.protocol import MAX_SNAPSHOT_BYTES
from quartet.env.reward import with_sound_reward
from quartet.env.session_thread import SessionThread
from quartet.errors import EnvFaultError, QuartetError
from quartet.fault import fault_of
from quartet.types import Action, Observation, StepResult, Task

LOG = logging.getLogger(__name__)
LONGEST_VALUE = 80
"""Maximum number of characters of a wrong result that an error shows."""

T = TypeVar("T", Observation, StepResult, bytes)


class GuardedPool:
    """Pool whose sessions raise `EnvFaultError` for exceptions in their code and for answers of the wrong type."""

    def __init__(self, pool: EnvPool) -> None:
        self._pool = pool

    async def acquire(self) -> Env:
        with _faults(f"{type(self._pool).__name__}.acquire"):
            return GuardedEnv(await self._pool.acquire())

    async def release(self, env: Env, *, healthy: bool) -> None:
        """Release a session. An exception in its `close`, also an `EnvError`, is only logged, since its episode is
        over."""
        assert isinstance(env, GuardedEnv)
        try:
            with _faults(f"{type(self._pool).__name__}.release"):
                env.thread.close()
                await self._pool.release(env.inner, healthy=healthy)
        except EnvFaultError as error:
            LOG.error("%s\n%s", error.what, error.traceback)
        except QuartetError as error:
            LOG.error("a session was not released: %s", error)

    async def close(self) -> None:
        await self._pool.close()


class GuardedEnv:
    """Session of a guarded pool; `inner` is the environment's own, whose methods may be plain functions. They run in
    `thread`."""

    def __init__(self, inner: Env) -> None:
        self.inner, self.thread = inner, SessionThread()

    async def reset(self, task: Task) -> Observation:
        self._task = task
        return self._sound("reset", await self._ask("reset", Observation, task))

    async def step(self, action: str) -> StepResult:
        """Apply one action. Raise `RewardError` for a reward that is not finite, before other checks of the answer."""
        return self._rewarded("step", await self._ask("step", StepResult, action))

    async def act(self, actions: Sequence[Action]) -> StepResult:
        """Perform typed actions. Raise the same errors as `step`."""
        acting(self.inner)
        return self._rewarded("act", await self._ask("act", StepResult, actions))

    async def snapshot(self) -> bytes:
        """Return the state of the episode. Raise `EnvFaultError` if it is too large."""
        restorable(self.inner)
        state = await self._ask("snapshot", bytes)
        if len(state) > MAX_SNAPSHOT_BYTES:
            raise EnvFaultError(
                f"{self._name('snapshot')} returned {len(state)} bytes; a state may have at most {MAX_SNAPSHOT_BYTES}: "
                "store it elsewhere and return its name"
            )
        return state

    async def restore(self, task: Task, snapshot: bytes) -> Observation:
        self._task = task
        restorable(self.inner)
        return self._sound("restore", await self._ask("restore", Observation, task, snapshot))

    async def close(self) -> None:
        await self.thread.call(self.inner.close)
        self.thread.close()

    async def _ask(self, method: str, kind: type[T], *arguments: Any) -> T:
        name = self._name(method)
        with _faults(name):
            answer = await self.thread.call(getattr(self.inner, method), *arguments)
        if not isinstance(answer, kind):
            shown = repr(answer)[:LONGEST_VALUE]
            raise EnvFaultError(f"{name} returned {shown} of type {type(answer).__name__}, not {kind.__name__}")
        return answer

    def _rewarded(self, method: str, result: StepResult) -> StepResult:
        with _faults(f"the reward of {self._name(method)}"):  # its conversion to a float is the environment's code
            result = with_sound_reward(result, self._task)
        return self._sound(method, result)

    def _sound(self, method: str, answer: T) -> T:
        kind = type(answer)
        try:
            # Decoding checks the types of a struct's fields; encoding checks that texts can be sent.
            msgspec.msgpack.decode(msgspec.msgpack.encode(answer), type=kind)
            if isinstance(answer, StepResult):
                msgspec.json.encode(answer.info)  # `info` is sent as JSON, whose keys must be texts
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise EnvFaultError(f"{self._name(method)} returned a {kind.__name__} of wrong types: {error}") from error
        return answer

    def _name(self, method: str) -> str:
        return f"{type(self.inner).__name__}.{method}"


@contextmanager
def _faults(what: str) -> Iterator[None]:
    """Raise an exception of the block as `EnvFaultError` that begins with `what`; let Quartet's own errors pass."""
    try:
        yield
    except QuartetError:
        raise
    except (Exception, SystemExit, asyncio.CancelledError) as error:  # its `sys.exit` must not end the host
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # a time limit or a lost client ends the request
        fault = fault_of(error)
        raise EnvFaultError(f"{what} raised {fault.summary}", fault.traceback) from error
