"""Base of allocators whose groups have a first round of a fixed size and at most one more."""

from abc import abstractmethod

from quartet.manager.control.base import RolloutAllocator
from quartet.types import Group, Root, Round, Task


class TwoRoundAllocator(RolloutAllocator):
    """Allocate `first_rollouts`, and if all of them are countable, the rollouts of `second`.

    The second round is decided by a complete first one: a group that lost a rollout to a failure has none.
    """

    @property
    def first_rollouts(self) -> int:
        """Number of rollouts of the first round."""
        return self.context.recipe.control.rollouts_per_group

    def plan(self, task: Task) -> list[Root]:
        return [Root()] * self.first_rollouts

    def more(self, group: Group) -> Round:
        return self.second(group) if len(group.members) == self.first_rollouts else []

    @abstractmethod
    def second(self, group: Group) -> Round:
        """Return the second round of a group after its first one; an empty result closes the group."""
