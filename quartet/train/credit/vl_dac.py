"""VL-DAC: advantages from values of steps, for a loss per token (Bredis and others 2025)."""

from functools import partial

import numpy as np

from quartet.config.section import Fraction
from quartet.train.advantage_estimation import explained_variance, gae, token_rewards
from quartet.train.baseline import normalised
from quartet.train.credit_batch import CreditBatch, piecewise
from quartet.train.value_credit import ValueCredit, ValueSettings


class VlDac(ValueCredit):
    """Advantage: GAE over the calls of a rollout, normalised over all steps of the batch; equal within a call.

    The value of a call is the value before its first trained token, which depends on the observation and on nothing of
    the response. Discount and trace count calls, so a long response does not decay the signal. The first trained token
    of a call has the call's return; the others have none (NaN), so the loss term `value` does not train them. Calls
    whose tokens are all too old are not steps; their rewards count for the previous step. The value after the last call
    is that of `gae`. Groups are not compared, so a group of one gives a gradient too.
    """

    class Settings(ValueSettings):
        discount: Fraction = 0.9
        """Discount (gamma): a reward n calls later is multiplied by gamma^n."""
        trace: Fraction = 0.95
        """Weight of later temporal differences per call (lambda)."""

    settings: Settings
    source = "VL-DAC, arXiv 2508.04280"

    def assign(self, batch: CreditBatch) -> None:
        assert batch.values_T is not None
        trained = np.flatnonzero(batch.mask_T)
        steps_S, first_S = np.unique(batch.calls_T[trained], return_index=True)
        starts_S = trained[first_S]
        values_S = batch.values_T[starts_S]
        rewards_S = np.bincount(batch.calls_T, token_rewards(batch), minlength=len(batch.calls))[steps_S]
        estimate = partial(gae, discount=self.settings.discount, trace=self.settings.trace)
        members_S = batch.members_C[steps_S]
        advantages_S = piecewise(estimate, members_S, rewards_S, values_S, self.end_values(batch)[members_S])
        advantages_C = np.zeros(len(batch.calls))
        advantages_C[steps_S] = normalised(advantages_S, epsilon=1e-8)
        batch.assign_calls(advantages_C)
        batch.returns_T[:] = np.nan
        batch.returns_T[starts_S] = advantages_S + values_S
        batch.metrics |= explained_variance(advantages_S + values_S, values_S)
