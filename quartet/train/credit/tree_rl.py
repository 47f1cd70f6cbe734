"""TreeRL's credit of forked rollouts: values of calls relative to the root and to the previous call (Hou and others
2025)."""

import numpy as np

from quartet.train.baseline import centred
from quartet.train.call_tree import CallTree
from quartet.train.credit.base import Credit
from quartet.train.credit_batch import CreditBatch


class TreeRl(Credit):
    """Advantage: ((V - V_root) + (V - V_before)) / sqrt(number of rollouts that share the call).

    V is the mean reward of the rollouts that share a call, V_before the V of the previous call, and V_root the group's
    mean. For a first call, V_before is V_root. Without forks, the advantage is 2 (reward - group mean) at a rollout's
    first call and half of that at its other calls. Equal rewards, or a group of one, give 0.
    """

    source = "TreeRL, arXiv 2506.11902, global and local advantages"

    def assign(self, batch: CreditBatch) -> None:
        tree = CallTree(batch)
        gains_C = tree.leaf_means(batch.over_groups(centred, batch.rewards_N))  # V - V_root
        before_C = np.where(batch.places_C == 0, 0.0, np.roll(gains_C, 1))
        batch.assign_calls((2 * gains_C - before_C) / np.sqrt(tree.leaves_C))
