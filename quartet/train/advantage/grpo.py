"""GRPO's group-relative advantage (Shao et al. 2024, DeepSeekMath, section 4.1)."""

import numpy as np

from quartet.config import Advantage


class Grpo:
    """(reward - group mean) / (group standard deviation + epsilon), one value per trajectory.

    Values below zero are then multiplied by `negative_weight`; 1 is GRPO as published.
    The standard deviation is the unbiased one (ddof = 1). Equal rewards give exactly 0, so does a group of one.
    """

    def __init__(self, section: Advantage) -> None:
        self._epsilon, self._negative_weight = section.epsilon, section.negative_weight

    def estimate(self, rewards_N: np.ndarray, calls_N: np.ndarray) -> np.ndarray:
        if len(rewards_N) < 2 or np.ptp(rewards_N) == 0:
            return np.zeros(len(rewards_N))  # rounding in the mean would otherwise be blown up by 1 / epsilon
        advantages_N = (rewards_N - rewards_N.mean()) / (rewards_N.std(ddof=1) + self._epsilon)
        return np.where(advantages_N < 0, self._negative_weight * advantages_N, advantages_N)
