"""REINFORCE with a leave-one-out baseline."""

import numpy as np

from quartet.train.credit.base import Credit
from quartet.train.credit_batch import CreditBatch


class AgainstTheOthers(Credit):
    """Advantage: reward - mean reward of the group's other members."""

    source = "RLOO, arXiv 2402.14740"

    def assign(self, batch: CreditBatch) -> None:
        batch.assign_members(batch.over_groups(_against_the_others, batch.rewards_N))


def _against_the_others(rewards_N: np.ndarray) -> np.ndarray:
    if len(rewards_N) < 2:
        return np.zeros(len(rewards_N))
    return rewards_N - (rewards_N.sum() - rewards_N) / (len(rewards_N) - 1)
