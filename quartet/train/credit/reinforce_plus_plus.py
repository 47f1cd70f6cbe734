"""REINFORCE++: discounted returns with a KL penalty per token, whitened over the batch (Hu 2025)."""

from functools import partial

import numpy as np

from quartet.config.section import Fraction, PositiveFloat, Section
from quartet.train.advantage_estimation import token_rewards
from quartet.train.baseline import whitened
from quartet.train.credit.base import Credit
from quartet.train.credit_batch import CreditBatch, to_come


class ReinforcePlusPlus(Credit):
    """Advantage: the discounted return of each token, normalised over all tokens of the batch but those too old.

    A token's reward is that of its call, at the call's last token, minus `kl_coefficient` * (log pi - log
    pi_reference), with the recorded log pi. Tokens that are not trained do not count as steps of the discount. Groups
    are not compared, so a group of one gives a gradient too. A batch in which all returns are equal gives 0. A token
    without a recorded log-prob has no penalty.
    """

    class Settings(Section):
        discount: Fraction = 1.0
        """Discount (gamma): a reward n tokens later is multiplied by gamma^n."""
        kl_coefficient: PositiveFloat = 0.01
        """Weight of the penalty per token in the reward."""

    settings: Settings
    needs = frozenset({"reference"})
    compares_totals = False
    source = "REINFORCE++, arXiv 2501.03262"
    metrics = {"train/penalty_kl_nats": "nats: mean of log pi - log pi_reference, the penalty before its coefficient"}

    def assign(self, batch: CreditBatch) -> None:
        assert batch.reference_logprobs_T is not None
        gaps_T = batch.logprobs_T - batch.reference_logprobs_T
        penalties_T = np.where(np.isfinite(gaps_T), gaps_T, 0.0)
        rewards_T = token_rewards(batch) - self.settings.kl_coefficient * penalties_T
        batch.returns_T[:] = batch.over_trained_tokens(partial(to_come, discount=self.settings.discount), rewards_T)
        batch.advantages_T[:] = whitened(batch.returns_T, batch.mask_T)
        batch.metrics["penalty_kl_nats"] = float(penalties_T.sum() / max(1, np.isfinite(gaps_T).sum()))
