"""Interface of guidance: the advice that the policy reads in a guided rollout."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from quartet.config import Recipe
from quartet.part import Part
from quartet.types import Observation, Task, Trajectory

Guide = Callable[[Observation], str]
"""Source of advice during one rollout: returns the advice for an observation, "" for none."""
Solved = Callable[[Task, int], Sequence[Trajectory]]


def _nothing_solved(_task: Task, _count: int) -> Sequence[Trajectory]:
    return ()


class Guidance(Part):
    """Advice for guided rollouts. Control decides which rollouts are guided (`Root.guided`).

    The advice follows the goal in the prompt from which a response is sampled. The response is trained after the prompt
    without the advice (`Call.train_prompt_ids`). The log-probs recorded at sampling belong to the prompt with it, so
    the trainer does not use them: its own log-probs at the start of the train step, after the prompt without advice,
    are the denominator of the importance ratio. All tokens of a guided call thus begin with the ratio 1, like those of
    a demonstration. The true ratio to the guided policy would be nearly 0 for the responses that guidance is for.
    """

    def __init__(self, settings: Any, recipe: Recipe, solved: Solved = _nothing_solved) -> None:
        """`solved` returns the newest successes on other tasks of a task's family, at most the given number."""
        super().__init__(settings)
        self.recipe, self.solved = recipe, solved

    @abstractmethod
    def guide(self, task: Task) -> Guide:
        """Return the source of advice for one rollout of the task."""
