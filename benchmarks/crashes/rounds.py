"""Allocator for crash campaigns: a group gets its rollouts in two rounds, so that the end of a round is a write."""

from quartet.manager.control.base import RolloutAllocator
from quartet.types import Group, Root, Round, Task


class TwoRounds(RolloutAllocator):
    """Half of `control.rollouts_per_group` at first; the rest when these have ended."""

    def plan(self, task: Task) -> list[Root]:
        return [Root()] * (self._size // 2)

    def more(self, group: Group) -> Round:
        return [Root()] * max(0, self._size - len(group.members))

    @property
    def _size(self) -> int:
        return self.context.recipe.control.rollouts_per_group
