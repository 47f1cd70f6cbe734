"""Horizon with the same turn limit for every group."""

from quartet.manager.control.base import Horizon
from quartet.types import Task


class FixedHorizon(Horizon):
    """Limit every rollout to `rollout.max_turns` turns."""

    def max_turns(self, task: Task) -> int:
        return self.context.recipe.rollout.max_turns
