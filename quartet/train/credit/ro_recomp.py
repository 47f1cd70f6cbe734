"""RoRecomp: train first on short successes and long failures of each group (Rollout Response Recomposition, 2025)."""

import random
from functools import partial
from typing import Literal

import numpy as np

from quartet.config.section import Fraction
from quartet.train.call_tree import CallTree
from quartet.train.credit.base import Credit
from quartet.train.credit.grpo import Grpo
from quartet.train.credit_batch import CreditBatch
from quartet.train.recomposition import priority


class RoRecomp(Credit):
    """GRPO's advantage over the whole group; only its priority members are trained, in some batches also the others.

    Priority members are the shortest successes and the longest failures: `share` of each, rounded up. A success is a
    rollout above the group's mean reward. With the probability `compensation` a batch trains all members. Without such
    batches the policy may forget how to solve what needs many turns.

    The paper keeps the other members in a first-in, first-out buffer of one batch and trains on it in a step of its
    own. Here a batch that compensates trains them together with its priority members, so they are never old. The
    paper's values of `share` and `compensation` could not be verified.
    """

    class Settings(Grpo.Settings):
        share: Fraction = 0.8
        """Share of the successes, and of the failures, that have priority (alpha)."""
        compensation: Fraction = 0.5
        """Probability that a batch also trains the members without priority."""
        length: Literal["calls", "tokens"] = "calls"
        """Length of a rollout: its calls of the model, or its sampled tokens. Both count what a forked rollout shares
        with its parent, and tokens that are too old to be trained."""

    settings: Settings
    metrics = {"train/priority_fraction": "1: share of members that are trained by `ro_recomp`"}
    source = "RoRecomp, Rollout Response Recomposition, 2025: priority and compensation batches"

    def assign(self, batch: CreditBatch) -> None:
        batch.assign_members(batch.over_groups(Grpo(self.settings).normalised, batch.rewards_N))
        lengths_N = batch.num_tokens_N if self.settings.length == "tokens" else batch.num_calls_N
        draw = random.Random(str(sorted(batch.rollout_ids_N.tolist())))  # a repeated train step draws the same
        kept_N = np.ones(len(batch.rewards_N))
        if draw.random() >= self.settings.compensation:
            kept_N = batch.over_groups(partial(priority, share=self.settings.share), batch.rewards_N, lengths_N)
        CallTree(batch).leave_out(batch, kept_N == 0)
        batch.metrics["priority_fraction"] = float(kept_N.mean())
