"""Families in proportion to the chance that a group of theirs has both successes and failures."""

from quartet.data.control.base import ControlContext, TaskSampler
from quartet.types import Group, Task

FLOOR = 0.02
"""Added to every weight, so that a family that looks solved or hopeless is still looked at."""


def contrast(success_rate: float, rollouts: int) -> float:
    """Chance that `rollouts` attempts do not all end alike: 1 - s^N - (1 - s)^N."""
    return 1.0 - success_rate**rollouts - (1.0 - success_rate) ** rollouts


class ContrastSampler(TaskSampler):
    """Draws a family by its expected contrast, then a seed uniformly.

    The success rate is the mean of a Beta(1/2, 1/2) prior (Jeffreys) updated with the newest rollouts of the family: an
    unseen family counts as one of even odds, one that failed 32 times in a row is drawn about once where another
    is drawn eight times.
    """

    def __init__(self, context: ControlContext) -> None:
        self._context = context

    def pick(self, n: int) -> list[Task]:
        first, weights = self._context.groups_admitted(), self.weights()
        draws = [self._context.draw(first + offset) for offset in range(n)]
        return [self._context.task(draw.choices(self._context.families, weights)[0], draw) for draw in draws]

    def observe(self, group: Group) -> None:
        """The ledger's statistics say it all."""

    def weights(self) -> list[float]:
        """One per family, not normalised."""
        statistics = self._context.statistics()
        rollouts = self._context.recipe.control.rollouts_per_group
        weights = []
        for family in self._context.families:
            seen = statistics.get(family)
            successes, count = (seen.successes, seen.rollouts) if seen else (0, 0)
            weights.append(contrast((successes + 0.5) / (count + 1), rollouts) + FLOOR)
        return weights
