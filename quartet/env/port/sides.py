"""A session of the reference and one of the port, which get the same requests."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Literal, NamedTuple, Self, TypeVar

from quartet import config
from quartet.env.base import SPEAKER, Env, acting
from quartet.env.check.subject import Response
from quartet.env.checks.resets import difference
from quartet.env.deadlines import Deadlines
from quartet.env.port.equality import equal
from quartet.env.port.session import opened
from quartet.errors import EnvError, QuartetError, RewardError
from quartet.types import Observation, StepResult, Task

SEEN = ("goal", "text", "error", "messages", "tools", "pictures")
"""Fields of an observation that a policy reads."""
RESULT = ("reward", "rewards", "terminated", "truncated")
INFO = ("success", "rewards", SPEAKER)
"""Entries of a result's `info` that Quartet reads: of games with several roles also their rewards, and who is next."""
T = TypeVar("T")


class DifferenceError(Exception):
    """Reference and port gave different answers; the message says which."""


class Side(NamedTuple):
    """Session of the reference or of the port, and its limits."""

    name: str
    env: Env
    deadlines: Deadlines

    async def answer(self, phase: Literal["reset", "step"], request: Awaitable[T], what: str) -> T | QuartetError:
        """Return the answer to a request, or the failure of the environment or of its reward."""
        try:
            async with self.deadlines.bounded(phase, f"{what} in the {self.name}"):
                return await request
        except (EnvError, RewardError) as error:
            return error


class Sides:
    """Two sessions, of reference and port. Exceptions in their code are answers, too, and compared as such."""

    def __init__(self, reference: Side, port: Side, tolerance: float) -> None:
        self._sides, self._tolerance = (reference, port), tolerance

    @classmethod
    @asynccontextmanager
    async def open(cls, reference: config.Env, port: config.Env, tolerance: float) -> AsyncIterator[Self]:
        """Give new sessions, which are released with the block. Their numbers may differ by `tolerance`."""
        async with AsyncExitStack() as stack:
            sides = [
                Side(name, await stack.enter_async_context(opened(env, guarded=True)), Deadlines.of(env))
                for name, env in (("reference", reference), ("port", port))
            ]
            yield cls(sides[0], sides[1], tolerance)

    async def reset(self, task: Task) -> Observation:
        """Reset both sessions. Raise `DifferenceError` if their observations differ, or the error of both."""
        self._task = task
        return await self._both("reset", lambda env: env.reset(task), _observed, f"the reset of {task.key}")

    async def step(self, response: Response) -> StepResult:
        """Send a response to both sessions. Raise `DifferenceError` if the results differ, or the error of both."""
        return await self._both(
            "step",
            lambda env: env.step(response) if isinstance(response, str) else acting(env).act(response),
            _resulting,
            f"the step {response!r:.60} of {self._task.key}",
        )

    async def _both(
        self,
        phase: Literal["reset", "step"],
        ask: Callable[[Env], Awaitable[T]],
        values: Callable[[T], dict[str, Any]],
        what: str,
    ) -> T:
        first, second = [await side.answer(phase, ask(side.env), what) for side in self._sides]
        if isinstance(first, QuartetError) and isinstance(second, QuartetError):
            if isinstance(first, RewardError) == isinstance(second, RewardError):
                raise first
            raise DifferenceError(f"the reference fails: {first.what}; the port fails otherwise: {second.what}")
        for answer, name in ((first, "reference"), (second, "port")):
            if isinstance(answer, QuartetError):
                raise DifferenceError(f"the {name} fails, and the other does not: {answer.what}")
        assert not isinstance(first, QuartetError) and not isinstance(second, QuartetError)
        expected, found = values(first), values(second)
        for field, before in expected.items():
            if not equal(before, found[field], self._tolerance):
                raise DifferenceError(f"`{field}` differs, reference and port: {difference(before, found[field])}")
        return first


def _observed(observation: Observation) -> dict[str, Any]:
    return {name: getattr(observation, name) for name in SEEN}


def _resulting(result: StepResult) -> dict[str, Any]:
    values = {name: getattr(result, name) for name in RESULT}
    return values | {f"info[{name!r}]": result.info.get(name) for name in INFO} | _observed(result.observation)
