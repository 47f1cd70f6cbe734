"""MaxRL: maximise the likelihood of success, approximated to the order that the group's size allows (2026)."""

import numpy as np

from quartet.train.baseline import centred
from quartet.train.credit.base import Credit
from quartet.train.credit_batch import CreditBatch


class MaxRl(Credit):
    """Advantage: (reward - group mean) / group mean, the same at every token of a rollout.

    Let p be the probability of success at a task. Reinforcement learning usually maximises the mean of p over tasks;
    this credit maximises the mean of log p, so the weight of a task is about 1 / p. For N rollouts with rewards 0 and 1
    the expected gradient is that of p, times the sum of (1 - p)^k for k from 0 to N - 2. A group without a success,
    with equal rewards, or with one member gives 0. Rewards below zero count as 0.
    """

    source = "Maximum Likelihood Reinforcement Learning, arXiv 2602.02710"

    def assign(self, batch: CreditBatch) -> None:
        batch.assign_members(batch.over_groups(_over_the_mean, batch.rewards_N))


def _over_the_mean(rewards_N: np.ndarray) -> np.ndarray:
    gains_N = np.maximum(rewards_N, 0.0)
    return centred(gains_N) / gains_N.mean() if gains_N.any() else gains_N
