"""BranchGRPO's credit of forked rollouts: reward fusion and depth-wise advantages (Li and others 2025)."""

from functools import partial
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from quartet.config.section import Fraction, PositiveFloat, Section
from quartet.train.baseline import normalised
from quartet.train.call_tree import CallTree
from quartet.train.credit.base import Credit
from quartet.train.credit_batch import CreditBatch, over_equal
from quartet.train.pruning import kept_calls


class BranchGrpo(Credit):
    """Advantage: (V - mean) / (standard deviation + epsilon) over the group's calls of the same index.

    V is the mean reward of the rollouts that share the call or, with `likely`, the mean V of the calls after it, each
    weighed by its probability. A shared call counts once in the mean and in the unbiased standard deviation. Rollouts
    of one group begin with the same observation, so they form one tree. If all V at an index are equal, or only one
    call has the index, the advantage is 0. Pruned calls are not trained; they still count in V and in the means.
    """

    class Settings(Section):
        epsilon: PositiveFloat = 1e-8
        """Constant added to the standard deviation of each depth."""
        fusion: Literal["mean", "likely"] = "mean"
        """Value of a shared call: the `mean` reward of its rollouts, or that of the `likely` calls after it."""
        keep_best: Fraction = 1.0
        """Share of a group's last calls, those with the largest rewards, that is trained."""
        keep_worst: Fraction = 0.0
        """Share of a group's last calls, those with the smallest rewards, that is trained."""
        untrained_calls: list[Annotated[int, Field(ge=0)]] = []
        """Indices of calls that are not trained."""

    settings: Settings
    source = "BranchGRPO, arXiv 2509.06040, fusion, depth-wise advantages and pruning"

    def assign(self, batch: CreditBatch) -> None:
        own, tree = self.settings, CallTree(batch)
        own_C, advantages_C = tree.own_C, np.zeros(len(batch.calls))
        likely = own.fusion == "likely"
        fused_C = tree.likely_means(batch) if likely else tree.leaf_means(batch.rewards_N)
        keys, normal = (batch.groups_C[own_C], batch.places_C[own_C]), partial(normalised, epsilon=own.epsilon)
        advantages_C[own_C] = over_equal(normal, keys, fused_C[own_C])
        batch.assign_calls(advantages_C)
        kept_C = kept_calls(batch, own.untrained_calls, own.keep_best, own.keep_worst)
        batch.mask_T &= kept_C[batch.calls_T]
