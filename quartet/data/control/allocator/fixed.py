"""The same number of rollouts for every group."""

from quartet.data.control.base import RolloutAllocator
from quartet.types import Task


class FixedAllocator(RolloutAllocator):
    """`control.rollouts_per_group` rollouts, whatever the task."""

    def plan(self, task: Task) -> int:
        return self.context.recipe.control.rollouts_per_group
