"""The same turn limit for every group."""

from quartet.manager.control.base import Horizon
from quartet.types import Task


class FixedHorizon(Horizon):
    """Limit of `rollout.max_turns` for every task."""

    def max_turns(self, task: Task) -> int:
        return self.context.recipe.rollout.max_turns
