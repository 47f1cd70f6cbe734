"""Allocator with a small first round: a group is completed only if its first rewards differ."""

from typing import Annotated

from pydantic import Field

from quartet.config import Recipe
from quartet.config.section import Section
from quartet.errors import ConfigError
from quartet.manager.control.two_rounds import TwoRoundAllocator
from quartet.types import Group, Root, Round


class ScreenedAllocator(TwoRoundAllocator):
    """Allocate a few rollouts, and the rest of `control.rollouts_per_group` only if their rewards are not all equal.

    A group with equal rewards has no gradient. With N rollouts of which n come first, a group of a task at success rate
    p costs n + (1 - p^n - (1 - p)^n) (N - n) rollouts in the mean, so a task that always or never succeeds costs n
    instead of N. In return, a group is lost if its first n rewards are equal and only later ones differ. The second
    round has all remaining rollouts, so the number of successes among them is not biased by the decision.
    """

    class Settings(Section):
        first_rollouts: Annotated[int, Field(ge=2)] = 4
        """Number of rollouts of the first round, below `control.rollouts_per_group`."""

    settings: Settings
    source = "Quartet's own; sequential screening before GRPO's group"

    @classmethod
    def check(cls, settings: Settings, recipe: Recipe) -> None:
        super().check(settings, recipe)
        if settings.first_rollouts >= recipe.control.rollouts_per_group:
            raise ConfigError(
                f"control.allocator.first_rollouts = {settings.first_rollouts} leaves nothing for a second round of "
                f"control.rollouts_per_group = {recipe.control.rollouts_per_group}",
                "lower the first, or take the allocator `fixed`",
            )

    @property
    def first_rollouts(self) -> int:
        return self.settings.first_rollouts

    def second(self, group: Group) -> Round:
        rewards = [member.trajectory.reward for member in group.members]
        if min(rewards) == max(rewards):
            return []
        return [Root()] * (self.context.recipe.control.rollouts_per_group - len(rewards))
