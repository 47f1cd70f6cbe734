"""Interface of rewards, which score a response to a row of a data set."""

import asyncio
import inspect
import math
from abc import abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from quartet.errors import RewardError, SetupError
from quartet.fault import fault_of
from quartet.part import Part
from quartet.types import Message

AT_ONCE = 32
"""Maximum number of cases that coroutines and batches score at the same time."""
Value = float | Mapping[str, float]
"""A reward, or its named components, whose sum is the reward."""


class Case(Struct, frozen=True, kw_only=True):
    """One response to a row of a data set."""

    row: dict[str, Any]
    prompt: list[Message]
    """Messages that the policy read."""
    response: str
    answer: str
    """The part of the response that `env.answer` selects."""

    def gold(self, column: str) -> Any:
        """Return the row's value in `column`. Raise `RewardError` if the row has no such column."""
        if column not in self.row:
            raise RewardError(
                f"the row has no column {column!r}, only {', '.join(sorted(self.row))}",
                "name the column of the right answers in the settings of the reward",
            )
        return self.row[column]


class Score(Struct, frozen=True, kw_only=True):
    """Result of one case: components, or the error that prevented them."""

    components: dict[str, float] = {}
    error: str = ""


class Reward(Part):
    """Method that scores responses. It runs in a child process, so it may block, crash or hang.

    Most rewards define only `score`, as a function or a coroutine.
    """

    label: str
    """Name of the component of a reward that is a single number; its process sets the reward's name."""
    calls_at_once: int = 1
    """Maximum number of cases in one call of `score_all`; `AT_ONCE` for coroutines and batches."""

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self.label = type(self).__module__.rpartition(".")[2]

    @abstractmethod
    def score(self, case: Case) -> Value | Awaitable[Value]:
        """Return the reward of one response. Raise any exception if it cannot be computed."""

    async def score_all(self, cases: Sequence[Case], timeout_seconds: float) -> list[Score]:
        """Score cases, all at the same time if `score` is a coroutine. An exception is the `Score.error` of its
        case."""
        return await asyncio.gather(*(self._scored(case, timeout_seconds) for case in cases))

    async def _scored(self, case: Case, timeout_seconds: float) -> Score:
        clock = asyncio.timeout(timeout_seconds)
        try:
            async with clock:
                value = self.score(case)
                return self.checked(await value if inspect.isawaitable(value) else value)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  (the function may be the user's)
            if clock.expired():
                return Score(error=f"did not end within {timeout_seconds:g} s")
            return failed(error)

    def checked(self, value: Any) -> Score:
        """Return the components of a value. A value that is not finite numbers is an error."""
        components = value if isinstance(value, Mapping) else {self.label: value}
        try:
            # A text such as "1" is refused: it is more likely an answer than a reward.
            if any(isinstance(one, str) for one in components.values()):
                raise TypeError
            numbers = {str(name): float(one) for name, one in components.items()}
        except (TypeError, ValueError):
            return Score(error=f"returned {value!r:.80}, which is neither a number nor a dict of numbers")
        wrong = [name for name, one in numbers.items() if not math.isfinite(one)]
        if wrong or not numbers:
            return Score(error=f"returned {value!r:.80}, which is not finite" if wrong else "returned no components")
        return Score(components=numbers)


def failed(error: Exception) -> Score:
    """Return the score for an exception."""
    known = isinstance(error, (RewardError, SetupError))
    return Score(error=str(error) if known else f"raised {fault_of(error).summary}")
