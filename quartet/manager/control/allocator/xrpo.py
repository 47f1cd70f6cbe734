"""XRPO: further rollouts where they reduce the uncertainty about a task most; solved examples for hopeless tasks."""

from collections.abc import Sequence
from heapq import heapreplace
from math import log, sqrt
from typing import Annotated

from pydantic import Field

from quartet.config import Recipe
from quartet.config.section import Section
from quartet.errors import ConfigError
from quartet.manager.control.allocator.guided import check_guidance
from quartet.manager.control.base import RolloutAllocator
from quartet.student_t import student_t
from quartet.types import Group, Root, Round, Task


class XrpoAllocator(RolloutAllocator):
    """Allocate a few rollouts, and then further ones by priority: expected reduction of the half-width + exploration.

    The half-width of a task's success rate after n rollouts is h(n) = t(n - 1) s / sqrt(n), with Student's t at 97.5 %
    and the standard deviation s of its successes, 0 or 1: judged groups are stored without their rewards. The priority
    of one more rollout is h(n) - h(n + 1) + `exploration` * sqrt(log(1 + T) / n), where T is the number of all
    rollouts. XRPO gives the rollouts of a batch to its tasks one by one, each to the largest priority. Groups end at
    different times here, so a group is compared with the newest judged groups, as if they had their first rounds only,
    and gets its share of `control.rollouts_per_group` rollouts per group. The decision is repeated after every round.

    If all rollouts of the first round failed, and another task of the family was solved, the second round is guided:
    `rollout.guidance` should be `examples`. Training leaves the examples out, because they are missing at test time:
    what a guided rollout found is learned as if it had been found without help.
    """

    class Settings(Section):
        first_rollouts: Annotated[int, Field(ge=2)] = 4
        """Number of rollouts of the first round, below `control.rollouts_per_group`."""
        max_rollouts: Annotated[int, Field(ge=2)] = 32
        """Maximum number of rollouts of a group, all rounds together."""
        exploration: Annotated[float, Field(ge=0)] = 0.1
        """Factor of the exploration term."""
        peers: Annotated[int, Field(ge=0)] = 32
        """Number of judged groups with which a group is compared, equally many of each family."""
        guided_rollouts: Annotated[int, Field(ge=1)] = 4
        """Number of guided rollouts of a group whose first round had no success."""

    may_guide = True
    settings: Settings
    source = "XRPO, arXiv 2510.06672; the exploration term, and the comparison with earlier groups, are our reading"

    @classmethod
    def check(cls, settings: Settings, recipe: Recipe) -> None:
        mean = recipe.control.rollouts_per_group
        if not settings.first_rollouts < mean <= settings.max_rollouts:
            raise ConfigError(
                f"control.rollouts_per_group = {mean}, the mean, must be above control.allocator.first_rollouts = "
                f"{settings.first_rollouts} and at most control.allocator.max_rollouts = {settings.max_rollouts}",
                "change one of the three settings",
            )
        if recipe.rollout.guidance.name != "none":
            check_guidance(recipe)

    def plan(self, task: Task) -> list[Root]:
        return [Root()] * self.settings.first_rollouts

    def more(self, group: Group) -> Round:
        size, successes = len(group.members), [float(member.trajectory.success) for member in group.members]
        if size <= self.settings.first_rollouts and not any(successes):
            guided = self.context.recipe.rollout.guidance.name != "none"
            if guided and self.context.solved_elsewhere(group.task, 1):
                return [Root(guided=True)] * self.settings.guided_rollouts
        deviations = [deviation(successes), *self._deviations_of_peers()]
        counts = [size, *[self.settings.first_rollouts] * (len(deviations) - 1)]
        budget = self.context.recipe.control.rollouts_per_group * len(counts) - sum(counts)
        wanted = allocate(counts, deviations, budget, self.settings.exploration)[0]
        return [Root()] * (min(wanted, max(size, self.settings.max_rollouts)) - size)

    def _deviations_of_peers(self) -> list[float]:
        """Return the standard deviations of the successes of the newest judged groups of all families."""
        per_family = -(-self.settings.peers // len(self.context.families))
        outcomes = [one for stats in self.context.statistics().values() for one in stats.outcomes[:per_family]]
        successes = [[1.0] * one.successes + [0.0] * (one.countable - one.successes) for one in outcomes]
        return list(map(deviation, successes))


def deviation(values: Sequence[float]) -> float:
    """Return the unbiased standard deviation of values; 0 for fewer than two."""
    if len(values) < 2:
        return 0.0
    mean = sum(values) / len(values)
    return sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def half_width(deviation: float, count: int) -> float:
    """Return the half-width of the 95 % interval of a mean of `count` values, at least 2."""
    return student_t(count - 1) * deviation / sqrt(count)


def allocate(counts: Sequence[int], deviations: Sequence[float], budget: int, exploration: float) -> list[int]:
    """Return the numbers of rollouts per task after `budget` more, each given to the task with the largest priority.

    T is the number of rollouts after that. Of tasks with equal priorities, the one with the fewest rollouts, and then
    the first one, is served.
    """
    counts = [max(2, count) for count in counts]
    explored = exploration * sqrt(log(1 + sum(counts) + max(0, budget)))

    def entry(task: int) -> tuple[float, int, int]:
        count, spread = counts[task], deviations[task]
        gain = half_width(spread, count) - half_width(spread, count + 1)
        return -(gain + explored / sqrt(count)), count, task

    queue = sorted(map(entry, range(len(counts))))
    for _ in range(budget):
        task = queue[0][2]
        counts[task] += 1
        heapreplace(queue, entry(task))
    return counts
