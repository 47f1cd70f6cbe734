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


class BranchGrpo(Credit):
    """Advantage: (V - mean) / (standard deviation + epsilon) over the group's calls of the same index.

    V is the mean reward of the rollouts that share the call or, with `likely`, the mean V of the calls after it, each
    weighed by its probability. A shared call counts once in the mean and in the unbiased standard deviation. Rollouts
    of one group begin with the same observation, so they form one tree. If all V at an index are equal, or only one
    call has the index, the advantage is 0. A rollout that is longer than all others therefore learns nothing from its
    additional calls.

    Pruning leaves calls untrained; they still count in V and in the means. Of the last calls of a group's rollouts, the
    shares `keep_best` and `keep_worst` with the largest and smallest rewards are trained, rounded up.
    """

    class Settings(Section):
        epsilon: PositiveFloat = 1e-8
        """Constant added to the standard deviation of each depth."""
        fusion: Literal["mean", "likely"] = "mean"
        """Value of a shared call: the `mean` of its rollouts' rewards, or that of the calls after it, weighed by how
        `likely` the policy samples them."""
        keep_best: Fraction = 1.0
        """Share of a group's last calls, those with the largest rewards, that is trained."""
        keep_worst: Fraction = 0.0
        """Share of a group's last calls, those with the smallest rewards, that is trained."""
        untrained_calls: list[Annotated[int, Field(ge=0)]] = []
        """Indices of calls that are not trained."""

    settings: Settings
    source = "BranchGRPO, arXiv 2509.06040, fusion, depth-wise advantages and pruning"

    def assign(self, batch: CreditBatch) -> None:
        tree = CallTree(batch)
        own_C, advantages_C = tree.own_C, np.zeros(len(batch.calls))
        likely = self.settings.fusion == "likely"
        fused_C = tree.likely_means(batch) if likely else tree.leaf_means(batch.rewards_N)
        keys = (batch.groups_C[own_C], batch.places_C[own_C])
        advantages_C[own_C] = over_equal(partial(normalised, epsilon=self.settings.epsilon), keys, fused_C[own_C])
        batch.assign_calls(advantages_C)
        batch.mask_T &= self._trained(batch)[batch.calls_T]

    def _trained(self, batch: CreditBatch) -> np.ndarray:
        """Return `[C]`: True at calls that pruning keeps."""
        trained_C = ~np.isin(batch.places_C, self.settings.untrained_calls)
        last_C = batch.places_C == batch.num_calls_N[batch.members_C] - 1
        trained_C[last_C] &= batch.over_groups(self._kept, batch.rewards_N).astype(bool)[batch.members_C[last_C]]
        return trained_C

    def _kept(self, rewards_K: np.ndarray) -> np.ndarray:
        size, order = len(rewards_K), np.argsort(rewards_K, kind="stable")
        best, worst = (int(np.ceil(share * size)) for share in (self.settings.keep_best, self.settings.keep_worst))
        kept_K = np.zeros(size)
        kept_K[order[size - best :]] = kept_K[order[:worst]] = 1.0
        return kept_K
