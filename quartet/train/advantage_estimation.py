"""Rewards at tokens, and generalised advantage estimation (GAE) from them and from values."""

import numpy as np

from quartet.train.credit_batch import CreditBatch, to_come


def token_rewards(batch: CreditBatch) -> np.ndarray:
    """Return `[T]`: the reward of each call, at the last token up to the call's end that its member trains.

    A call may have no token to train: it is too old, or its parent trains it. A reward that no trained token of the
    member precedes is left out.
    """
    rewards_T, trained = np.zeros(len(batch.calls_T)), np.flatnonzero(batch.mask_T)
    if not len(trained):
        return rewards_T
    numbers_C = np.searchsorted(batch.calls_T[trained], np.arange(len(batch.calls)), side="right") - 1
    latest_C = trained[numbers_C]
    reached_C = (numbers_C >= 0) & (batch.members_T[latest_C] == batch.members_C)
    np.add.at(rewards_T, latest_C[reached_C], batch.rewards_C[reached_C])
    return rewards_T


def gae(rewards_K: np.ndarray, values_K: np.ndarray, discount: float, trace: float) -> np.ndarray:
    """Return `[K]`: for K tokens or steps of a member, the sum of the temporal differences r + discount * v' - v from
    each one on, discounted by `discount * trace`. The value after the last one is 0."""
    differences_K = rewards_K + discount * np.append(values_K[1:], 0.0) - values_K
    return to_come(differences_K, discount * trace)


def explained_variance(returns_K: np.ndarray, values_K: np.ndarray) -> dict[str, float]:
    """Return the metric `explained_variance`, 1 - Var(return - value) / Var(return); none for equal returns."""
    if len(returns_K) < 2 or np.ptp(returns_K) == 0:
        return {}
    return {"explained_variance": float(1 - (returns_K - values_K).var() / returns_K.var())}
