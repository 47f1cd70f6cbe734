"""What does not depend on how training goes: rollouts from the recipe, turns from the recipe or the suite."""

from quartet.data.control.base import ControlContext, Horizon, RolloutAllocator
from quartet.env import turn_limit
from quartet.types import Task


class FixedAllocator(RolloutAllocator):
    def __init__(self, context: ControlContext) -> None:
        self._rollouts = context.recipe.control.rollouts_per_group

    def plan(self, task: Task) -> int:
        return self._rollouts


class FixedHorizon(Horizon):
    def __init__(self, context: ControlContext) -> None:
        self._max_turns = context.recipe.rollout.max_turns

    def max_turns(self, task: Task) -> int:
        return self._max_turns


class SuiteHorizon(Horizon):
    """The turn limit that the environment's suite states for the family; `rollout.max_turns` is the upper bound."""

    def __init__(self, context: ControlContext) -> None:
        self._env, self._upper_bound = context.recipe.env, context.recipe.rollout.max_turns

    def max_turns(self, task: Task) -> int:
        return turn_limit(self._env, task.family, self._upper_bound)
