"""A function as a reward: `module:function`, with the parameters of TRL's or verl's reward functions."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from pydantic import ConfigDict

from quartet.config import Recipe
from quartet.config import Reward as RewardChoice
from quartet.config.section import Section
from quartet.env.rewards.base import AT_ONCE, Case, Reward, Score, failed
from quartet.errors import ConfigError, nearest
from quartet.registry import PLACE_OF_MODULES, load_class

BATCH = {"responses", "completions"}
"""Parameters that make a function take a batch: then each of its arguments is a list with one entry per response."""


class Function(Reward):
    """Call `module:function`, named in place of this part. Further settings are keyword arguments.

    The function declares what it reads: `response`, `answer`, `prompt`, `row`, or any column of the data set. With a
    parameter `responses` or `completions` it receives lists and returns a list, as in TRL. It may be a coroutine.
    """

    class Settings(Section):
        model_config = ConfigDict(extra="allow")

    path = ""

    def __init__(self, settings: Any, function: Callable[..., Any] | None = None) -> None:
        super().__init__(settings)
        self._function: Callable[..., Any] = function or load_class(self.path, "reward")
        self._fixed: dict[str, Any] = settings.model_extra or {}
        self._parameters = inspect.signature(self._function).parameters
        self._refuse_unread_settings()
        self._takes_batch = bool(BATCH & self._parameters.keys())
        if self._takes_batch or inspect.iscoroutinefunction(self._function):
            self.calls_at_once = AT_ONCE

    def _refuse_unread_settings(self) -> None:
        """Raise `ConfigError` for a setting that the function does not read, such as a misspelt one."""
        if self._takes_any:
            return
        if unread := self._fixed.keys() - self._parameters.keys():
            raise ConfigError(
                f"{self.label}() has no parameter {min(unread)!r}, which the recipe sets for this reward",
                nearest(min(unread), [*self._parameters, *RewardChoice.model_fields]),
            )

    @property
    def _takes_any(self) -> bool:
        return any(one.kind is one.VAR_KEYWORD for one in self._parameters.values())

    @classmethod
    def check(cls, settings: Any, recipe: Recipe) -> None:
        module, _, function = cls.path.partition(":")
        try:
            found = find_spec(module) if module and function else None
        except (ImportError, ValueError):
            found = None
        if found is None:
            raise ConfigError(
                f"no module {module!r} with the reward function {function!r}" if cls.path else "no reward function",
                f"write module:function; {PLACE_OF_MODULES}",
            )

    def score(self, case: Case) -> Any:
        return self._function(**self._arguments(_named(case)))

    async def score_all(self, cases: Sequence[Case], timeout_seconds: float) -> list[Score]:
        """Score cases one by one, or all in one call of a function that takes a batch; if that raises an exception,
        each in a call of its own. The process that waits ends a call that takes too long."""
        if not self._takes_batch:
            return await super().score_all(cases, timeout_seconds)
        rows = [_named(case) for case in cases]
        columns = {name: [row.get(name) for row in rows] for name in {name for row in rows for name in row}}
        try:
            values = self._function(**self._arguments(columns))
            scores = [self.checked(one) for one in (await values if inspect.isawaitable(values) else values)]
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  (the function is the user's)
            if len(cases) == 1:
                return [failed(error)]
            # One case may be the cause, and the others have scores.
            return [score for case in cases for score in await self.score_all([case], timeout_seconds)]
        if len(scores) != len(cases):
            return [Score(error=f"returned {len(scores)} values for {len(cases)} responses")] * len(cases)
        return scores

    def checked(self, value: Any) -> Score:
        """Return the components of a value; of a dict that a function of verl returns, only `score` is the reward."""
        if "solution_str" in self._parameters and isinstance(value, Mapping) and "score" in value:
            value = value["score"]
        return super().checked(value)

    def _arguments(self, named: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments that the function declares; with `**kwargs` it gets every column.

        Raise `TypeError` for a parameter without a value.
        """
        named = named | self._fixed
        if self._takes_any:
            return named
        needed = [name for name, one in self._parameters.items() if one.default is one.empty]
        missing = [name for name in needed if name not in named]
        if missing:
            raise TypeError(f"{self.label}() reads {missing[0]!r}, but there are only {', '.join(sorted(named))}")
        return {name: value for name, value in named.items() if name in self._parameters}


def _named(case: Case) -> dict[str, Any]:
    """Return the values that a parameter may name, with the names of Quartet, TRL and verl.

    A row's own columns come first, except for `prompts` and the response. As in TRL, a conversational prompt has a
    completion of messages.
    """
    chat = isinstance(case.row.get("prompt"), list)
    texts = [{"role": "assistant", "content": case.response}] if chat else case.response
    verl = case.row.get("reward_model") or {}
    return {
        "prompt": case.prompt[-1].content,
        "answer": case.answer,
        "ground_truth": verl.get("ground_truth") if isinstance(verl, dict) else None,
        **case.row,
        "row": case.row,
        "response": case.response,
        "responses": case.response,
        "solution_str": case.response,
        "completions": texts,
        "prompts": case.row.get("prompt", case.prompt[-1].content),
    }
