"""REINFORCE with a leave-one-out baseline."""

import numpy as np

from quartet.train.advantage.base import Advantage


class AgainstTheOthers(Advantage):
    """The reward minus the mean reward of the group's other members."""

    source = "RLOO, arXiv 2402.14740"

    def estimate(self, rewards_N: np.ndarray, calls_N: np.ndarray) -> np.ndarray:
        if len(rewards_N) < 2:
            return np.zeros(len(rewards_N))
        return rewards_N - (rewards_N.sum() - rewards_N) / (len(rewards_N) - 1)
