"""Sampling of families by the share of their groups with different rewards (contrast), with a prior, divided by
cost."""

from statistics import fmean

from quartet.ledger.rows import FamilyStats
from quartet.manager.control.base import TaskSampler
from quartet.types import Task

GROUP_WINDOW = 12
"""Number of newest closed groups of a family to use."""
PRIOR_GROUPS = 4.0
"""Prior pseudo-count of groups. Of these groups, a share equal to the family's failure rate counts as having
contrast."""
PRIOR_ROLLOUTS = 8
"""Prior pseudo-count of rollouts, half of them failures, so that one successful group does not count as solved."""
MIN_WEIGHT = 0.04
"""Constant added to every weight, so that solved families are still drawn and a regression is detected. A family
without rollouts has the weight 1 + `MIN_WEIGHT`."""


def weight(stats: FamilyStats | None, mean_turns: float) -> float:
    """Return a family's weight: its share of groups with contrast, shrunk towards its failure rate while few groups are
    known.

    `mean_turns` is the mean number of turns over families. The rollouts of a family with more turns take more of the
    environments' time, so its weight is divided by the ratio of its turns to `mean_turns`.
    """
    if stats is None or not stats.rollouts:
        return MIN_WEIGHT + 1
    failures = stats.rollouts - stats.successes + PRIOR_ROLLOUTS / 2
    failure_rate = failures / (stats.rollouts + PRIOR_ROLLOUTS)
    mixed = [outcome.mixed for outcome in stats.outcomes[:GROUP_WINDOW]]
    contrast = (sum(mixed) + PRIOR_GROUPS * failure_rate) / (len(mixed) + PRIOR_GROUPS)
    return MIN_WEIGHT + contrast / max(1.0, stats.mean_turns / mean_turns)


class ContrastSampler(TaskSampler):
    """Draw a family by the share of its newest closed groups with different rewards, then a seed uniformly.

    The share is measured on groups and not computed from the success rate, because all rollouts of a group have the
    same seed. A family that is solved on half its seeds may therefore have no contrast at all. A family that always
    fails may become solvable by skills learned on other families, or may just have been forgotten. It is drawn about a
    third as often as a family whose groups all have contrast. A family that is always solved is drawn about a
    fourteenth as often. A family with twice the mean number of turns is drawn half as often.
    """

    def pick(self, n: int) -> list[Task]:
        first, weights = self.context.groups_admitted(), self.weights()
        draws = [self.context.draw(first + offset) for offset in range(n)]
        return [self.context.task(draw.choices(self.context.families, weights)[0], draw) for draw in draws]

    def weights(self) -> list[float]:
        """Return one weight per family, not normalised."""
        statistics = self.context.statistics()
        mean_turns = fmean([stats.mean_turns for stats in statistics.values() if stats.mean_turns] or [1.0])
        return [weight(statistics.get(family), mean_turns) for family in self.context.families]
