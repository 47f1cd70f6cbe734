"""DART's high-entropy steps: turns in which the policy was certain are left out of the loss."""

import numpy as np

from quartet.train.credit.base import Credit
from quartet.train.credit_batch import CreditBatch


class HighEntropyTurns(Credit):
    """Train only turns whose mean token entropy H_t is at or above the group's percentile tau (arXiv 2509.23866).

    The percentile (DART: 20) is over all turns of the group that have a token to train, interpolated linearly; ties are
    kept. Advantages are unchanged; masked tokens leave the loss and its denominator.

    With `spare_replayed` all turns of a stored success train, and the percentile is over the group's own turns. Once a
    success begins to be learned, its entropy is below that of the failures around it, and DART's rule drops it.
    """

    needs = frozenset({"entropies"})

    def __init__(self, percentile: float, *, spare_replayed: bool) -> None:
        super().__init__(None)
        self._percentile, self._spare_replayed = percentile, spare_replayed

    def assign(self, batch: CreditBatch) -> None:
        assert batch.entropies_T is not None
        calls, entropies = batch.calls_T[batch.mask_T], batch.entropies_T[batch.mask_T]
        tokens_C = np.bincount(calls, minlength=len(batch.calls))
        means_C = np.bincount(calls, entropies, minlength=len(batch.calls)) / np.maximum(tokens_C, 1)
        spared_C = batch.replayed_N[batch.members_C] & self._spare_replayed
        counted_C = (tokens_C > 0) & ~spared_C
        thresholds_C = np.full(len(batch.calls), -np.inf)
        for group in np.unique(batch.groups_C[counted_C]):
            of_group_C = batch.groups_C == group
            thresholds_C[of_group_C] = np.percentile(means_C[of_group_C & counted_C], self._percentile)
        batch.mask_T &= (spared_C | (means_C >= thresholds_C))[batch.calls_T]
