"""Certainty of rollouts by the entropy of their sampled tokens."""

import numpy as np


def certainty(entropies_K: np.ndarray) -> np.ndarray:
    """Return the factors of a group's advantages: 1 + (mean - H) / mean, at least 0, and 1 where H is unknown or the
    mean is 0. Without the bound at 0 their mean is 1."""
    known_K = np.isfinite(entropies_K)
    if not known_K.any() or (mean := entropies_K[known_K].mean()) <= 0:
        return np.ones(len(entropies_K))
    return np.where(known_K, 1 + (mean - entropies_K) / mean, 1.0).clip(min=0)
