"""DART's selection of high-entropy turns: turns in which the policy was certain are left out of the loss."""

import numpy as np

from quartet.train.credit.base import Credit
from quartet.train.credit_batch import CreditBatch


class HighEntropyTurns(Credit):
    """Mask of the turns whose mean token entropy is below a percentile of the group's turns (arXiv 2509.23866).

    The percentile (20 in DART) is computed over all turns of the group that have a trained token, and interpolated
    linearly. Turns at the percentile are trained. Advantages do not change; masked tokens are left out of the loss and
    its denominator.

    With `exempt_replayed`, all turns of a replayed success are trained, and the percentile is over the group's other
    turns. Otherwise DART's rule would mask a success as soon as the policy begins to learn it, because its entropy is
    then lower than that of the failures in its group.
    """

    needs = frozenset({"entropies"})

    def __init__(self, percentile: float, *, exempt_replayed: bool) -> None:
        super().__init__(None)
        self._percentile, self._exempt_replayed = percentile, exempt_replayed

    def assign(self, batch: CreditBatch) -> None:
        assert batch.entropies_T is not None
        calls, entropies = batch.calls_T[batch.mask_T], batch.entropies_T[batch.mask_T]
        tokens_C = np.bincount(calls, minlength=len(batch.calls))
        means_C = np.bincount(calls, entropies, minlength=len(batch.calls)) / np.maximum(tokens_C, 1)
        exempt_C = batch.replayed_N[batch.members_C] & self._exempt_replayed
        counted_C = (tokens_C > 0) & ~exempt_C
        thresholds_C = np.full(len(batch.calls), -np.inf)
        for group in np.unique(batch.groups_C[counted_C]):
            of_group_C = batch.groups_C == group
            thresholds_C[of_group_C] = np.percentile(means_C[of_group_C & counted_C], self._percentile)
        batch.mask_T &= (exempt_C | (means_C >= thresholds_C))[batch.calls_T]
