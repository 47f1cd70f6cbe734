"""REINFORCE with a leave-one-out baseline (Kool and others 2019; Ahmadian and others 2024, arXiv 2402.14740)."""

import numpy as np

from quartet.train.baseline import centred
from quartet.train.credit.base import Credit
from quartet.train.credit_batch import CreditBatch


class Rloo(Credit):
    """Advantage: reward - mean reward of the group's other rollouts, the same at every token of a rollout.

    The baseline does not depend on the rollout itself, so the gradient is unbiased; the mean of the whole group would
    shrink it by (N - 1) / N. In a group of one the advantage is 0.
    """

    source = "RLOO, arXiv 2402.14740"

    def assign(self, batch: CreditBatch) -> None:
        batch.assign_members(batch.over_groups(_against_the_others, batch.rewards_N))


def _against_the_others(rewards_N: np.ndarray) -> np.ndarray:
    if len(rewards_N) < 2:
        return np.zeros(len(rewards_N))
    return centred(rewards_N) * len(rewards_N) / (len(rewards_N) - 1)
