"""DART's dynamic rollout frequency: fewer rollouts for a family that mostly succeeds."""

from quartet.data.control.base import ControlContext, RolloutAllocator
from quartet.types import Task


class DynamicAllocator(RolloutAllocator):
    """N rollouts below the threshold of the success rate s, from there on max(min_rollouts, int(9 / s - 7)), at most N.

    The formula is that of DART's released code (arXiv 2509.23866; `task_loader.py`): without a minimum five rollouts at
    s = 0.75, three at 0.9, two at 1. N is fixed when the group is admitted and does not depend on how its own rollouts
    end, so what a group is worth is not biased by it. s is over the newest countable rollouts of the family; with fewer
    of them than a full group has, little is known and the group is full.
    """

    def __init__(self, context: ControlContext) -> None:
        control = context.recipe.control
        self._knobs, self._most = control.dynamic_rollouts, control.rollouts_per_group
        self._statistics = context.family_statistics

    def plan(self, task: Task) -> int:
        stats = self._statistics(task.family)
        success_rate = stats.success_rate
        if stats.rollouts < self._most or not success_rate or success_rate < self._knobs.success_threshold:
            return self._most
        return min(self._most, max(self._knobs.min_rollouts, int(9 / success_rate - 7)))
