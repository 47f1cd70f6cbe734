"""Families in proportion to the share of their groups that had contrast."""

from quartet.data.control.base import ControlContext, TaskSampler
from quartet.types import Group, Task

PRIOR_GROUPS = 1.0
"""Imagined groups, half of them mixed, added to what was seen: an unseen family counts as one of even odds."""


def weight(mixed_groups: int, groups: int) -> float:
    """Expected share of mixed groups: Beta(1/2, 1/2) prior, updated with the newest groups."""
    return (mixed_groups + PRIOR_GROUPS / 2) / (groups + PRIOR_GROUPS)


class ContrastSampler(TaskSampler):
    """Draws a family by the share of its newest closed groups whose rewards differed, then a seed uniformly.

    The share is measured on groups, not computed from the success rate: the rollouts of a group have the same seed, so
    a family that is solved on half its seeds may have no contrast at all. A family without any mixed group in its
    window is drawn about once where a fully mixed one is drawn 25 times, so it is never forgotten.
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
        seen = [statistics.get(family) for family in self._context.families]
        return [weight(stats.mixed_groups, stats.groups) if stats else weight(0, 0) for stats in seen]
