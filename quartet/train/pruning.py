"""Pruning of calls from training: BranchGRPO's width and depth pruning."""

from functools import partial

import numpy as np

from quartet.rounding import rounded_up
from quartet.train.credit_batch import CreditBatch


def kept_calls(batch: CreditBatch, untrained_calls: list[int], best: float, worst: float) -> np.ndarray:
    """Return `[C]`: True at calls that pruning keeps.

    Calls with the indices `untrained_calls` are left out (depth). Of the last calls of a group's rollouts the shares
    `best` and `worst` with the largest and the smallest rewards are kept, rounded up (width).
    """
    kept_C = ~np.isin(batch.places_C, untrained_calls)
    last_C = batch.places_C == batch.num_calls_N[batch.members_C] - 1
    kept_N = batch.over_groups(partial(_best_and_worst, best=best, worst=worst), batch.rewards_N).astype(bool)
    kept_C[last_C] &= kept_N[batch.members_C[last_C]]
    return kept_C


def _best_and_worst(rewards_K: np.ndarray, best: float, worst: float) -> np.ndarray:
    size, order = len(rewards_K), np.argsort(rewards_K, kind="stable")
    most, least = (rounded_up(share * size) for share in (best, worst))
    kept_K = np.zeros(size)
    kept_K[order[size - most :]] = kept_K[order[:least]] = 1.0
    return kept_K
