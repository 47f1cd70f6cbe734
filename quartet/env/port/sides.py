"""A session of the reference and one of the port, which get the same requests."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self, TypeVar

from quartet import config
from quartet.env import make_environment
from quartet.env.base import SPEAKER, Env, acting
from quartet.env.check.subject import Response
from quartet.env.checks.resets import difference
from quartet.env.guarded import GuardedPool
from quartet.env.port.equality import equal
from quartet.errors import EnvError
from quartet.types import Observation, StepResult, Task

SEEN = ("goal", "text", "error", "messages", "tools", "pictures")
"""Fields of an observation that a policy reads."""
RESULT = ("reward", "rewards", "terminated", "truncated")
INFO = ("success", "rewards", SPEAKER)
"""Entries of a result's `info` that Quartet reads: of games with several roles also their rewards, and who is next."""
T = TypeVar("T")


class DifferenceError(Exception):
    """Reference and port gave different answers; the message says which."""


class Sides:
    """Two sessions, of reference and port. Exceptions in their code are answers, too, and compared as such."""

    def __init__(self, reference: Env, port: Env, tolerance: float) -> None:
        self._reference, self._port, self._tolerance = reference, port, tolerance

    @classmethod
    @asynccontextmanager
    async def open(cls, reference: config.Env, port: config.Env, tolerance: float) -> AsyncIterator[Self]:
        """Give new sessions, which are released with the block. Their numbers may differ by `tolerance`."""
        async with AsyncExitStack() as stack:
            sessions = list[Env]()
            for env in (reference, port):
                pool = GuardedPool(make_environment(env).pool(env))
                stack.push_async_callback(pool.close)
                sessions.append(await pool.acquire())
                stack.push_async_callback(pool.release, sessions[-1], healthy=True)
            yield cls(sessions[0], sessions[1], tolerance)

    async def reset(self, task: Task) -> Observation:
        """Reset both sessions. Raise `DifferenceError` if their observations differ, `EnvError` if both fail."""
        return await self._both(lambda env: env.reset(task), _observed)

    async def step(self, response: Response) -> StepResult:
        """Send a response to both sessions. Raise `DifferenceError` if the results differ, `EnvError` if both fail."""
        return await self._both(
            lambda env: env.step(response) if isinstance(response, str) else acting(env).act(response), _resulting
        )

    async def _both(self, ask: Callable[[Env], Awaitable[T]], values: Callable[[T], dict[str, Any]]) -> T:
        answers = [await _answer(ask(env)) for env in (self._reference, self._port)]
        first, second = answers
        if isinstance(first, EnvError) and isinstance(second, EnvError):
            raise first
        for answer, name in ((first, "reference"), (second, "port")):
            if isinstance(answer, EnvError):
                raise DifferenceError(f"the {name} fails, and the other does not: {answer.what}")
        assert not isinstance(first, EnvError) and not isinstance(second, EnvError)
        expected, found = values(first), values(second)
        for field, before in expected.items():
            if not equal(before, found[field], self._tolerance):
                raise DifferenceError(f"`{field}` differs, reference and port: {difference(before, found[field])}")
        return first


async def _answer(request: Awaitable[T]) -> T | EnvError:
    try:
        return await request
    except EnvError as error:
        return error


def _observed(observation: Observation) -> dict[str, Any]:
    return {name: getattr(observation, name) for name in SEEN}


def _resulting(result: StepResult) -> dict[str, Any]:
    values = {name: getattr(result, name) for name in RESULT}
    return values | {f"info[{name!r}]": result.info.get(name) for name in INFO} | _observed(result.observation)
