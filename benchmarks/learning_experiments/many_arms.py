"""World of the experiments on old data: prompts with many answers, each of which is right with a probability."""

import random

import numpy as np

from benchmarks.learning_experiments.episode import Episode
from benchmarks.learning_experiments.table import TablePolicy, logits_of
from benchmarks.learning_experiments.world import World
from quartet.types import Trajectory


class ManyArms(World):
    """Bandits that differ between seeds; an answer's probability of being right is uniform in [0, 1]."""

    def __init__(self, prompts: int, arms: int, seed: int) -> None:
        draw = random.Random(f"arms {seed}")
        self._prompts, self._arms = prompts, arms
        self._chances = [[draw.random() for _ in range(arms)] for _ in range(prompts)]

    def logits(self) -> np.ndarray:
        answers = {self._prompts + arm: 1 / self._arms for arm in range(self._arms)}
        return logits_of(dict.fromkeys(range(self._prompts), answers), self._prompts + self._arms)

    def play(self, episode: Episode, task: int) -> Trajectory:
        episode.show(task)
        (answer,) = episode.respond()
        right = episode.draw.random() < self._chances[task][answer - self._prompts]
        episode.reward(float(right))
        return episode.end(success=right)

    def optimality(self, policy: TablePolicy) -> float:
        """Return the expected reward of a policy as a share of the largest, the mean over prompts."""
        shares = []
        for prompt, chances in enumerate(self._chances):
            expected = (policy.chance(prompt, self._prompts + arm) * chance for arm, chance in enumerate(chances))
            shares.append(sum(expected) / max(chances))
        return sum(shares) / len(shares)
