"""World of the experiments on a single choice: one prompt and two answers, one of them right."""

from dataclasses import dataclass

import numpy as np

from benchmarks.learning_experiments.episode import Episode
from benchmarks.learning_experiments.table import logits_of
from benchmarks.learning_experiments.world import World
from quartet.types import Trajectory

PROMPT, RIGHT, WRONG = range(3)


@dataclass(frozen=True)
class TwoAnswers(World):
    """A bandit with two arms."""

    chance: float
    """Probability of the right answer at first."""

    def logits(self) -> np.ndarray:
        return logits_of({PROMPT: {RIGHT: self.chance, WRONG: 1 - self.chance}}, 3)

    def play(self, episode: Episode, task: int) -> Trajectory:
        episode.show(PROMPT)
        right = episode.respond() == [RIGHT]
        episode.reward(float(right))
        return episode.end(success=right)
