"""The turn limits that the environment's suite states."""

from quartet.env import turn_limit
from quartet.manager.control.base import Horizon
from quartet.types import Task


class SuiteHorizon(Horizon):
    """The suite's turn limit of the family; `rollout.max_turns` is the upper bound."""

    def max_turns(self, task: Task) -> int:
        recipe = self.context.recipe
        return turn_limit(recipe.env, task.family, recipe.rollout.max_turns)
