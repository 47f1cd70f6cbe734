"""DART's dynamic trajectory length: a rollout that takes much longer than any success is not worth its time."""

from quartet.data.control.base import ControlContext, Horizon
from quartet.data.control.fixed import SuiteHorizon
from quartet.types import Task


class LongestSuccessHorizon(Horizon):
    """The family's longest success x `factor` + 1 turns, once enough successes are known (arXiv 2509.23866).

    Successes that are longer than the limit would never be seen, so two things keep it open: every eighth group of a
    family runs at the upper bound as a whole (rollouts of one group are comparable only under one limit), and when
    most rollouts are cut off, the limit that cut them doubles. The upper bound is the suite's limit, or
    `rollout.max_turns`.
    """

    def __init__(self, context: ControlContext) -> None:
        self._knobs, self._statistics = context.recipe.control.longest_success, context.family_statistics
        self._upper_bound = SuiteHorizon(context)

    def max_turns(self, task: Task) -> int:
        stats, upper_bound = self._statistics(task.family), self._upper_bound.max_turns(task)
        explores = (stats.groups_admitted + 1) % self._knobs.groups_per_exploration == 0
        if stats.known_successes < self._knobs.min_successes or explores:
            return upper_bound
        limit = int(stats.longest_success * self._knobs.factor) + 1
        if stats.truncated_share > self._knobs.truncated_share:
            limit = max(limit, 2 * stats.tightest_limit)
        return min(limit, upper_bound)
