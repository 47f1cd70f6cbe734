"""BranchGRPO's credit of forked rollouts: reward fusion and depth-wise advantages (Li and others 2025)."""

from functools import partial

import numpy as np

from quartet.config.section import PositiveFloat, Section
from quartet.train.baseline import normalised
from quartet.train.call_tree import CallTree
from quartet.train.credit.base import Credit
from quartet.train.credit_batch import CreditBatch, over_equal


class BranchGrpo(Credit):
    """Advantage: (V - mean) / (standard deviation + epsilon) over the group's calls of the same index.

    V is the mean reward of the rollouts that share the call. A shared call counts once in the mean and in the unbiased
    standard deviation. Rollouts of one group begin with the same observation, so they form one tree. If all V at an
    index are equal, or only one call has the index, the advantage is 0. A rollout that is longer than all others
    therefore learns nothing from its additional calls.
    """

    class Settings(Section):
        epsilon: PositiveFloat = 1e-8
        """Constant added to the standard deviation of each depth."""

    settings: Settings
    source = "BranchGRPO, arXiv 2509.06040, mean fusion and depth-wise advantages"

    def assign(self, batch: CreditBatch) -> None:
        tree = CallTree(batch)
        own_C, advantages_C = tree.own_C, np.zeros(len(batch.calls))
        keys, fused_C = (batch.groups_C[own_C], batch.places_C[own_C]), tree.leaf_means(batch.rewards_N)
        advantages_C[own_C] = over_equal(partial(normalised, epsilon=self.settings.epsilon), keys, fused_C[own_C])
        batch.assign_calls(advantages_C)
