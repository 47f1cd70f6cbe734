"""DARS: a second round of rollouts for groups with few successes (Yang and others 2025)."""

from typing import Annotated, Literal

from pydantic import Field

from quartet.config import Recipe
from quartet.config.section import Section
from quartet.errors import ConfigError
from quartet.manager.control.two_rounds import TwoRoundAllocator
from quartet.rounding import rounded_up
from quartet.types import Group, Root, Round

Schedule = Literal["equal", "hard"]


class DarsAllocator(TwoRoundAllocator):
    """Allocate N rollouts, and after they have ended as many more as `second_round` says.

    N is `control.rollouts_per_group`. The credit should be `dr_grpo`, whose advantages the schedules sum. The second
    round is decided by the group's own first results, and all rollouts are compared: a group that is grown until it has
    a success has a success rate that is biased upwards. A group has no second round if one of its first N rollouts is
    not countable. DARS-B is this allocator with `train.minibatches = 1`.
    """

    class Settings(Section):
        schedule: Schedule = "equal"
        """Target for the sum of absolute advantages: `equal`, that of a group with half of its rollouts successful;
        `hard`, 2 (1 - p) times as much at success rate p."""
        max_rollouts: Annotated[int, Field(ge=2)] = 32
        """Maximum number of rollouts of a group, both rounds together. Published with groups of 8: 32 for `equal`, 64
        for `hard`."""

    settings: Settings
    source = "DARS, arXiv 2508.13755; formula of its released code, ray_dars_trainer.py"

    @classmethod
    def check(cls, settings: Settings, recipe: Recipe) -> None:
        super().check(settings, recipe)
        first = recipe.control.rollouts_per_group
        if settings.max_rollouts < first:
            raise ConfigError(
                f"control.allocator.max_rollouts = {settings.max_rollouts} is smaller than "
                f"control.rollouts_per_group = {first}",
                "raise the first",
            )

    def second(self, group: Group) -> Round:
        first = self.first_rollouts
        rate = sum(member.trajectory.success for member in group.members) / first
        return [Root()] * min(self.settings.max_rollouts - first, second_round(rate, first, self.settings.schedule))


def second_round(rate: float, rollouts: int, schedule: Schedule) -> int:
    """Return how many rollouts a group needs besides its first ones, at their success rate p.

    A rollout adds 2 p (1 - p) to the sum of absolute advantages; the target is rollouts / 2, times 2 (1 - p) with
    `hard`. Without a success p is taken as half a success. With p of at least 1/2 the result is 0.
    """
    if rate >= 0.5:
        return 0
    rate = rate or 0.5 / rollouts
    each, target = 2 * rate * (1 - rate), rollouts / 2
    if schedule == "hard":
        target *= 2 * (1 - rate)
    return max(0, rounded_up((target - rollouts * each) / each))
