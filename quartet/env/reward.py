"""Validation of rewards: a reward is a finite number, and the sum of its named parts if it has any. Any other value
raises `RewardError`; it does not count as 0."""

import math
from typing import Any

from msgspec.structs import replace

from quartet.errors import RewardError
from quartet.types import StepResult, Task


def number(value: Any) -> float:
    """Return a reward as a float; NaN if it is not a number."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last of a complex tensor
        return math.nan


def with_sound_reward(result: StepResult, task: Task) -> StepResult:
    """Return the step with its reward and its parts as floats. Raise `RewardError` that names the task."""
    reward, parts = number(result.reward), _parts(result.rewards)
    if not math.isfinite(reward):
        raise RewardError(
            f"the reward of {task.env}/{task.family}, seed {task.seed}, is {_shown(result.reward, 50)}: not a finite "
            "number",
            "fix the reward function of the environment",
        )
    if parts is None or (parts and not math.isclose(sum(parts.values()), reward, rel_tol=1e-6, abs_tol=1e-9)):
        raise RewardError(
            f"the reward of {task.env}/{task.family}, seed {task.seed}, is {reward:g}, but its parts are "
            f"{_shown(result.rewards, 300)}",
            "make `StepResult.reward` the sum of the numbers in the dict `StepResult.rewards`, or leave the parts out",
        )
    return replace(result, reward=reward, rewards=parts)


def _parts(rewards: Any) -> dict[Any, float] | None:
    """Return the named parts of a reward as floats; None if they are not a dict."""
    return {name: number(value) for name, value in rewards.items()} if isinstance(rewards, dict) else None


def _shown(value: object, characters: int) -> str:
    """Return the beginning of a wrong value. Python writes no integer of more than some thousand digits."""
    try:
        return repr(value)[:characters]
    except ValueError:
        return f"a value of type {type(value).__name__}"
