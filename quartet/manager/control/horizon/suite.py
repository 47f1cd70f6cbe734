"""The turn limits of the environment's suite."""

from quartet.env import turn_limit
from quartet.manager.control.base import Horizon
from quartet.types import Task


class SuiteHorizon(Horizon):
    """Limit rollouts to the suite's turn limit of the family, at most `rollout.max_turns`."""

    applies_family_limits = True

    def max_turns(self, task: Task) -> int:
        recipe = self.context.recipe
        return turn_limit(recipe.env, task.family, recipe.rollout.max_turns)
