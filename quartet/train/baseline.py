"""Functions that centre and scale values, shared by the credit methods."""

import numpy as np


def centred(values_K: np.ndarray) -> np.ndarray:
    """Return the values minus their mean; exactly 0 if all are equal, since later scaling would amplify a rounding
    error."""
    return np.zeros(len(values_K)) if np.ptp(values_K) == 0 else values_K - values_K.mean()


def normalised(values_K: np.ndarray, epsilon: float) -> np.ndarray:
    """Return (value - mean) / (unbiased standard deviation + epsilon); zeros if all values are equal."""
    if len(values_K) < 2:
        return np.zeros(len(values_K))
    return centred(values_K) / (values_K.std(ddof=1) + epsilon)


def whitened(values_T: np.ndarray, mask_T: np.ndarray) -> np.ndarray:
    """Return the values normalised over the tokens of the mask, and 0 at the others.

    A credit normalises before `train.mask_truncated` and `train.min_turn_entropy_percentile` remove tokens from the
    mask. The tokens that are trained in the end may therefore have another mean and standard deviation than 0 and 1.
    """
    white_T = np.zeros(len(values_T))
    white_T[mask_T] = normalised(values_T[mask_T], epsilon=1e-8)
    return white_T
