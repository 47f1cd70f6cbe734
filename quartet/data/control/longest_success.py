"""DART's dynamic trajectory length: a rollout that takes much longer than any success is not worth its time."""

from collections.abc import Sequence

from quartet.data.control.base import ControlContext, Horizon
from quartet.data.control.fixed import SuiteHorizon
from quartet.data.rows import GroupOutcome
from quartet.types import Task


class LongestSuccessHorizon(Horizon):
    """The family's longest success x `factor` + 1 turns, once enough successes are known (arXiv 2509.23866).

    Successes that are longer than the limit would never be seen, so two things keep it open: every eighth group of a
    family runs at the upper bound as a whole (rollouts of one group are comparable only under one limit), and when
    most rollouts are cut off, the limit that cut them doubles. Where a failure goes on until it is cut off, every
    family that mostly fails would double: so the share that fails at the upper bound too is taken off. The upper bound
    is the suite's limit, or `rollout.max_turns`.
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
        if stats.truncated_share - failed_share(stats.outcomes, upper_bound) > self._knobs.truncated_share:
            limit = max(limit, 2 * stats.tightest_limit)
        return min(limit, upper_bound)


def failed_share(outcomes: Sequence[GroupOutcome], upper_bound: int) -> float:
    """Share of the rollouts at the upper bound that failed; 0 when no group ran there."""
    at_bound = [outcome for outcome in outcomes if outcome.max_turns >= upper_bound]
    rollouts = sum(outcome.countable for outcome in at_bound)
    return 1 - sum(outcome.successes for outcome in at_bound) / rollouts if rollouts else 0.0
