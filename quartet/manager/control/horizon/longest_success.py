"""DART's dynamic trajectory length: limit rollouts to somewhat more turns than the longest success."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from quartet.config.section import Fraction, Section
from quartet.env import turn_limit
from quartet.ledger.rows import GroupOutcome
from quartet.manager.control.base import Horizon
from quartet.types import Task


class LongestSuccessHorizon(Horizon):
    """Limit rollouts to the longest success of the family x `factor` + 1 turns, once enough successes are known.

    Successes that need more turns than the limit would never be observed, so two rules explore. One of
    `groups_per_exploration` groups of a family runs at the upper bound, with all its rollouts, since rollouts of one
    group are comparable only under the same limit. If many rollouts are truncated (`truncated_share`), the limit that
    truncated them doubles. In some environments each failure runs until it is truncated, so a family that mostly fails
    would double its limit again and again. Therefore the share of failures at the upper bound is subtracted from the
    truncated share. The upper bound is the suite's limit, or `rollout.max_turns`.
    """

    class Settings(Section):
        min_successes: Annotated[int, Field(ge=1, le=64)] = 8
        """Number of known successes of a family from which its limit is lowered; with fewer, the limit is the upper
        bound."""
        factor: Annotated[float, Field(ge=1)] = 1.25
        """Factor f of the limit: f x the turns of the longest known success + 1."""
        groups_per_exploration: Annotated[int, Field(ge=1)] = 8
        """Number of groups of a family per exploration: the last of them runs at the upper bound, with all its
        rollouts."""
        truncated_share: Fraction = 0.5
        """Share of truncated rollouts above which the limit of a family doubles. The share of rollouts that fail at the
        upper bound is subtracted first."""

    settings: Settings
    applies_family_limits = True
    source = "DART, arXiv 2509.23866, dynamic trajectory length"

    def max_turns(self, task: Task) -> int:
        recipe, stats = self.context.recipe, self.context.family_statistics(task.family)
        upper_bound = turn_limit(recipe.env, task.family, recipe.rollout.max_turns)
        explores = (stats.groups_admitted + 1) % self.settings.groups_per_exploration == 0
        if stats.known_successes < self.settings.min_successes or explores:
            return upper_bound
        limit = int(stats.longest_success * self.settings.factor) + 1
        if stats.truncated_share - failed_share(stats.outcomes, upper_bound) > self.settings.truncated_share:
            limit = max(limit, 2 * stats.tightest_limit)
        return min(limit, upper_bound)


def failed_share(outcomes: Sequence[GroupOutcome], upper_bound: int) -> float:
    """Return the share of failures among the rollouts at the upper bound; 0 if no group ran there."""
    at_bound = [outcome for outcome in outcomes if outcome.max_turns >= upper_bound]
    rollouts = sum(outcome.countable for outcome in at_bound)
    return 1 - sum(outcome.successes for outcome in at_bound) / rollouts if rollouts else 0.0
