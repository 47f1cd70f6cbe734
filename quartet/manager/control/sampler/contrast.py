"""Families in proportion to the share of their groups that had contrast, with hope for those that fail, by cost."""

from statistics import fmean

from quartet.ledger.rows import FamilyStats
from quartet.manager.control.base import TaskSampler
from quartet.types import Task

GROUP_WINDOW = 12
"""Newest closed groups that are looked at."""
HOPED_GROUPS = 4.0
"""Imagined groups added to what was seen. They are mixed in proportion to how often the family fails."""
DOUBTED_ROLLOUTS = 8
"""Imagined rollouts of which half fail: one group that went well does not make a family solved."""
LEAST_WEIGHT = 0.04
"""Added to every weight, so that a relapse of a solved family is noticed. An unseen family weighs 1 more."""


def weight(stats: FamilyStats | None, mean_turns: float) -> float:
    """Measured share of mixed groups, drawn towards the family's failure rate while few groups are known.

    A family that takes more than `mean_turns`, the mean over families, costs more of the environments' time and is
    drawn so much less.
    """
    if stats is None or not stats.rollouts:
        return LEAST_WEIGHT + 1
    failures = stats.rollouts - stats.successes + DOUBTED_ROLLOUTS / 2
    failure_rate = failures / (stats.rollouts + DOUBTED_ROLLOUTS)
    mixed = [outcome.mixed for outcome in stats.outcomes[:GROUP_WINDOW]]
    contrast = (sum(mixed) + HOPED_GROUPS * failure_rate) / (len(mixed) + HOPED_GROUPS)
    return LEAST_WEIGHT + contrast / max(1.0, stats.mean_turns / mean_turns)


class ContrastSampler(TaskSampler):
    """Draws a family by the share of its newest closed groups whose rewards differed, then a seed uniformly.

    The share is measured on groups, not computed from the success rate: the rollouts of a group have the same seed, so
    a family that is solved on half its seeds may have no contrast at all. A family that always fails may come into
    reach when others teach its skills, or may have been forgotten a moment ago: it is drawn about once where a fully
    mixed one is drawn three times. One that is always solved is drawn once where a mixed one is drawn fourteen times.
    A family that takes twice the mean of turns is drawn half as often.
    """

    def pick(self, n: int) -> list[Task]:
        first, weights = self.context.groups_admitted(), self.weights()
        draws = [self.context.draw(first + offset) for offset in range(n)]
        return [self.context.task(draw.choices(self.context.families, weights)[0], draw) for draw in draws]

    def weights(self) -> list[float]:
        """One per family, not normalised."""
        statistics = self.context.statistics()
        mean_turns = fmean([stats.mean_turns for stats in statistics.values() if stats.mean_turns] or [1.0])
        return [weight(statistics.get(family), mean_turns) for family in self.context.families]
