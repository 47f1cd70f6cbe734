"""Lite PPO's advantage: the group's mean, the batch's standard deviation (Liu and others 2025, arXiv 2508.08221)."""

import numpy as np

from quartet.config.section import PositiveFloat, Section
from quartet.train.baseline import centred
from quartet.train.credit.base import Credit
from quartet.train.credit_batch import CreditBatch


class LitePpo(Credit):
    """Advantage: (reward - group mean) / (standard deviation over the whole batch + epsilon), equal within a rollout.

    A group whose rewards hardly differ gets small advantages; division by the group's own standard deviation would
    amplify them. The standard deviation is unbiased. The paper combines it with `loss.aggregation = "token_mean"`.
    """

    class Settings(Section):
        epsilon: PositiveFloat = 1e-6
        """Constant added to the batch's standard deviation."""

    settings: Settings
    source = "Lite PPO, arXiv 2508.08221; the standard deviation as in ROLL's `reward_norm`"

    def assign(self, batch: CreditBatch) -> None:
        if len(batch.rewards_N) < 2 or np.ptp(batch.rewards_N) == 0:
            return  # else 1 / epsilon would amplify the rounding error of a mean
        centred_N = batch.over_groups(centred, batch.rewards_N)
        batch.assign_members(centred_N / (batch.rewards_N.std(ddof=1) + self.settings.epsilon))
