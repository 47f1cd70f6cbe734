"""DigiRL's advantage of a step: a doubly robust mix of outcome and temporal difference (Bai and others 2024)."""

from functools import partial
from typing import ClassVar

import numpy as np

from quartet.config.section import Fraction, Section
from quartet.train.advantage_estimation import explained_variance, token_rewards
from quartet.train.credit.base import Credit
from quartet.train.credit_batch import CreditBatch, piecewise, to_come


class DoublyRobust(Credit):
    """Advantage of step h of H: w R_h + (1 - w) (r_h + V(s_h+1) - V(s_h)), with w = trace^(H - h).

    R_h is the sum of the rewards from step h on. The last step has only the reward: the outcome is certain there. The
    earlier a step, the more its value counts. The value of a step is that of its first trained token, and its return,
    which the loss term `value` fits, is R_h. Steps without a trained token are left out.
    """

    class Settings(Section):
        trace: Fraction = 0.5
        """Base of the outcome's weight (lambda): an outcome that is n steps later has the weight `trace` to the power
        of n."""

    settings: Settings
    needs = frozenset({"values"})
    compares_totals = False
    source = "DigiRL, arXiv 2406.11896, section 4.2"
    metrics: ClassVar = {"train/explained_variance": "1: share of the returns' variance that the values explain"}

    def assign(self, batch: CreditBatch) -> None:
        assert batch.values_T is not None
        trained = np.flatnonzero(batch.mask_T)
        steps_S, first_S = np.unique(batch.calls_T[trained], return_index=True)
        starts_S = trained[first_S]
        values_S, members_S = batch.values_T[starts_S], batch.members_C[steps_S]
        rewards_S = np.bincount(batch.calls_T, token_rewards(batch), minlength=len(batch.calls))[steps_S]
        advantages_C = np.zeros(len(batch.calls))
        mixed = partial(doubly_robust, trace=self.settings.trace)
        advantages_C[steps_S] = piecewise(mixed, members_S, rewards_S, values_S)
        batch.assign_calls(advantages_C)
        returns_S = piecewise(to_come, members_S, rewards_S)
        batch.returns_T[:] = np.nan
        batch.returns_T[starts_S] = returns_S
        batch.metrics |= explained_variance(returns_S, values_S)


def doubly_robust(rewards_K: np.ndarray, values_K: np.ndarray, trace: float) -> np.ndarray:
    """Return the advantages of a member's K steps."""
    weights_K = trace ** np.arange(len(rewards_K) - 1, -1, -1.0)
    differences_K = rewards_K + np.append(values_K[1:], 0.0) - values_K
    return weights_K * to_come(rewards_K) + (1 - weights_K) * differences_K
