"""Entropy-based advantage reshaping of ETTRL: uncertain rollouts get smaller advantages (2025)."""

from typing import Any, Literal

from quartet.train.certainty import certainty
from quartet.train.credit.base import Credit
from quartet.train.credit.grpo import Grpo
from quartet.train.credit.majority_vote import MajorityVote
from quartet.train.credit_batch import CreditBatch
from quartet.train.votes import vote


class Ear(Credit):
    """Advantage: GRPO's, times 1 + (mean - H) / mean, at least 0.

    H is the mean entropy of a rollout's sampled tokens under the trained policy, `mean` the mean of H over the group. A
    rollout that is as certain as the others keeps its advantage, a certain one gets up to twice as much, one with at
    least twice the mean entropy none. The bound at 0 is our reading: below it, an uncertain success would be unlearned.
    If all entropies are 0, or a rollout's are unknown, the factor is 1. H of a fork covers only its own tokens, without
    those that it shares with its parent.
    """

    class Settings(Grpo.Settings):
        labels: Literal["reward", "majority"] = "reward"
        """Reward to which GRPO's advantage belongs: the environment's, or 1 for the group's most frequent answer as in
        `majority_vote`, with which ETTRL combines it; the metrics are then those of `majority_vote` too."""

    settings: Settings
    needs = frozenset({"entropies"})
    metrics = MajorityVote.metrics
    source = "ETTRL, entropy-based advantage reshaping, arXiv 2508.11356"

    @classmethod
    def reads_rewards(cls, settings: Any) -> bool:
        return settings.labels == "reward"

    def assign(self, batch: CreditBatch) -> None:
        normalised = Grpo(self.settings).normalised
        if self.settings.labels == "majority":
            advantages_N = batch.over_roles(normalised, vote(batch))
        else:
            advantages_N = batch.over_groups(normalised, batch.rewards_N)
        batch.assign_members(advantages_N * batch.over_groups(certainty, batch.member_means(batch.entropies_T)))
