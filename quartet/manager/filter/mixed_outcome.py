"""DAPO's dynamic sampling: drop groups whose rewards are all equal, which have no gradient under GRPO."""

from typing import Any

from quartet.config import Recipe
from quartet.errors import ConfigError
from quartet.manager.control.base import RolloutAllocator
from quartet.manager.filter.base import Filter
from quartet.registry import find
from quartet.types import EQUAL_REWARDS, Group


class MixedOutcome(Filter):
    """Drop groups whose rewards are all exactly equal: DAPO's dynamic sampling (arXiv 2503.14476, section 3.2).

    Anchors are not compared. A group without a success is kept for its anchor, which supervised loss terms imitate.
    """

    reads_rewards = True
    source = "DAPO, arXiv 2503.14476, section 3.2"

    @classmethod
    def check(cls, settings: Any, recipe: Recipe) -> None:
        if recipe.control.rollouts_per_group == 1 and _rollouts_are_the_only_members(recipe):
            raise ConfigError(
                "the filter mixed_outcome drops every group of one rollout, and control.rollouts_per_group = 1",
                "set filters = [] if the credit does not compare rollouts, or raise control.rollouts_per_group",
            )

    def apply(self, group: Group) -> Group | str:
        rewards = {member.trajectory.reward for member in group.compared}
        has_anchor = len(group.compared) < len(group.members)
        imitates = has_anchor and not any(member.trajectory.success for member in group.compared)
        return group if len(rewards) > 1 or imitates else EQUAL_REWARDS


def _rollouts_are_the_only_members(recipe: Recipe) -> bool:
    """Return whether a group has one member per allocated rollout: no fork, second round, stored member, or second
    player."""
    brancher: Any = find("brancher", recipe.rollout.brancher.name)
    loop: Any = find("loop", recipe.rollout.loop.name)
    allocator: Any = find("allocator", recipe.control.allocator.name)
    adds = brancher.may_fork or allocator.more is not RolloutAllocator.more
    return recipe.replay.name == "none" and not adds and loop.one_player
