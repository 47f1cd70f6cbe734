"""Generalised advantage estimation at token level (Schulman and others 2015), as in verl's `core_algos.py`."""

from functools import partial

import numpy as np

from quartet.config.section import Fraction
from quartet.train.advantage_estimation import explained_variance, gae, token_rewards
from quartet.train.baseline import whitened
from quartet.train.credit_batch import CreditBatch
from quartet.train.value_credit import ValueCredit, ValueSettings


class Gae(ValueCredit):
    """Advantage: GAE over the trained tokens of a rollout, normalised over all tokens of the batch but those too old.

    The reward of a call is at its last token. Observations and tokens that are not trained are not steps, so credit
    does not decay across them. The return of a token, which the loss term `value` fits, is its advantage before the
    normalisation + its value. The value after the last token is 0 or, for truncated rollouts with
    `bootstrap_truncated`, the critic's estimate. This estimate does not depend on the final observation, which was not
    part of a prompt. Groups are not compared, so a group of one gives a gradient too.
    """

    class Settings(ValueSettings):
        discount: Fraction = 1.0
        """Discount (gamma): a reward n tokens later is multiplied by gamma^n."""
        trace: Fraction = 0.95
        """Weight of later temporal differences per token (lambda). With 0 the advantage is the temporal difference of
        one step, with 1 it is the return minus the value."""

    settings: Settings
    source = "GAE, arXiv 1506.02438, equation 16"

    def assign(self, batch: CreditBatch) -> None:
        assert batch.values_T is not None
        ends_T = self.end_values(batch)[batch.members_T]
        estimate = partial(gae, discount=self.settings.discount, trace=self.settings.trace)
        advantages_T = batch.over_trained_tokens(estimate, token_rewards(batch), batch.values_T, ends_T)
        batch.returns_T[:] = np.where(batch.mask_T, advantages_T + batch.values_T, 0.0)
        batch.advantages_T[:] = whitened(advantages_T, batch.mask_T)
        batch.metrics |= explained_variance(batch.returns_T[batch.mask_T], batch.values_T[batch.mask_T])
