"""VADE, per task family: Thompson sampling of how much a group would teach."""

from quartet.data.control.base import ControlContext, TaskSampler
from quartet.data.rows import FamilyStats
from quartet.types import Group, Task


class VadeSampler(TaskSampler):
    """Draws p ~ Beta(a + 1, b + 1) for every family and takes the family with the largest p (1 - p)^e (VADE, e = 2).

    Every group has draws of its own, so a family may be picked several times in a row, and the task's seed is drawn
    uniformly. VADE keeps counts per task and takes the best B tasks by one draw; here a family is a task, since a seed
    recurs too rarely to have statistics.

    a and b are the successes and failures of the family's newest groups. They fade on two scales, because the policy
    moves: with every further group of the family, and with every train step. The paper's page gives
    posterior and gain; the two decays are our reading of it. Both are computed from the ledger, so a restarted run has
    the same posterior, and no group can enter it twice.
    """

    def __init__(self, context: ControlContext) -> None:
        self._context, self._knobs = context, context.recipe.control.vade

    def pick(self, n: int) -> list[Task]:
        statistics, first = self._context.statistics(), self._context.groups_admitted()
        step = self._context.train_step()
        counts = {family: self.counts(statistics.get(family), step) for family in self._context.families}
        tasks: list[Task] = []
        for offset in range(n):
            draw = self._context.draw(first + offset)
            gains = {
                family: gain(draw.betavariate(a + 1, b + 1), self._knobs.exponent) for family, (a, b) in counts.items()
            }
            tasks.append(self._context.task(max(gains, key=gains.__getitem__), draw))
        return tasks

    def observe(self, group: Group) -> None:
        """The ledger's statistics say it all."""

    def counts(self, stats: FamilyStats | None, train_step: int) -> tuple[float, float]:
        """Faded successes and failures of a family at a train step."""
        successes = failures = 0.0
        for newer, outcome in enumerate(stats.outcomes if stats else []):
            steps = train_step - outcome.judged_at_step
            weight = self._knobs.decay_sampled**newer * self._knobs.decay_step**steps
            successes += weight * outcome.successes
            failures += weight * (outcome.countable - outcome.successes)
        return successes, failures


def gain(success_rate: float, exponent: float) -> float:
    """VADE's information gain of a group at success rate p: p (1 - p)^exponent."""
    return success_rate * (1 - success_rate) ** exponent
