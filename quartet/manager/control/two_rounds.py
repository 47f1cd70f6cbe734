"""Base of allocators whose groups have a first round of a fixed size and at most one more."""

from abc import abstractmethod
from typing import Any, cast

from quartet.config import Recipe
from quartet.errors import ConfigError
from quartet.manager.control.base import RolloutAllocator
from quartet.manager.straggler.base import StragglerRule
from quartet.registry import find
from quartet.types import Group, Root, Round, Task


class TwoRoundAllocator(RolloutAllocator):
    """Allocate `first_rollouts`, and if all of them are countable, the rollouts of `second`.

    The second round is decided by a complete first one: a group that lost a rollout to a failure has none.
    """

    @classmethod
    def check(cls, settings: Any, recipe: Recipe) -> None:
        """Raise `ConfigError` for a straggler rule that may end the first round before it is complete."""
        rule = cast(type[StragglerRule], find("straggler", recipe.straggler.name))
        if rule.quorum is not StragglerRule.quorum:
            raise ConfigError(
                f"the straggler rule {recipe.straggler.name!r} ends rounds early, so that a group of the allocator "
                f"{recipe.control.allocator.name!r} would have no second round",
                "set straggler.name = 'none', or take the allocator `fixed`",
            )

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
