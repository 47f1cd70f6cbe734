"""The same number of rollouts and the same number of turns for every task, from the recipe."""

from quartet.data.control.base import ControlContext, Horizon, RolloutAllocator
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
