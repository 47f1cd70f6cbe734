"""Means over seeds with 95 % intervals of Student's t."""

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist, fmean, stdev

from msgspec import Struct

_T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Student's t at 97.5 % for 1, 2, ... degrees of freedom."""


class Interval(Struct, frozen=True, kw_only=True):
    """Mean of `n` values, and between which bounds the true mean lies in 95 % of cases."""

    mean: float
    low: float | None
    """None with a single value: one seed says nothing about others."""
    high: float | None
    n: int


def interval(values: Sequence[float]) -> Interval:
    """Raises `ValueError` without a value."""
    n, mean = len(values), fmean(values)
    if n < 2:
        return Interval(mean=mean, low=None, high=None, n=n)
    half = student_t(n - 1) * stdev(values) / sqrt(n)
    return Interval(mean=mean, low=mean - half, high=mean + half, n=n)


def student_t(degrees: int) -> float:
    """The 97.5 % quantile. Beyond the table by Cornish and Fisher's expansion (Abramowitz and Stegun 26.7.5)."""
    if degrees <= len(_T_975):
        return _T_975[degrees - 1]
    z = NormalDist().inv_cdf(0.975)
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def wilson(rate: float, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a success rate over `n` episodes (Wilson, 1927).

    A mean over families with equally many episodes has a slightly narrower one, since its strata are fixed.
    """
    z = NormalDist().inv_cdf(0.975)
    centre, width = rate + z * z / (2 * n), z * sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return max(0.0, (centre - width) / (1 + z * z / n)), min(1.0, (centre + width) / (1 + z * z / n))
