"""Allocator with the same number of rollouts for every group."""

from quartet.manager.control.base import RolloutAllocator
from quartet.types import Root, Task


class FixedAllocator(RolloutAllocator):
    """Allocate `control.rollouts_per_group` rollouts for every task."""

    def plan(self, task: Task) -> list[Root]:
        return [Root()] * self.context.recipe.control.rollouts_per_group
