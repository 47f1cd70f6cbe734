"""Mean over seeds and its 95 % confidence interval, from Student's t distribution."""

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist, fmean, stdev

from msgspec import Struct

from quartet.student_t import student_t


class Interval(Struct, frozen=True, kw_only=True):
    """Mean of `n` values, with the bounds of its 95 % confidence interval."""

    mean: float
    low: float | None
    """Lower bound; None for a single value, since one seed says nothing about others."""
    high: float | None
    """Upper bound; None for a single value."""
    n: int


def interval(values: Sequence[float]) -> Interval:
    """Return the mean and the 95 % interval of `values`. Raises `ValueError` if there are none."""
    n, mean = len(values), fmean(values)
    if n < 2:
        return Interval(mean=mean, low=None, high=None, n=n)
    half = student_t(n - 1) * stdev(values) / sqrt(n)
    return Interval(mean=mean, low=mean - half, high=mean + half, n=n)


def wilson(rate: float, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a success rate over `n` episodes (Wilson, 1927).

    The true interval of a mean over families with equally many episodes each is slightly narrower, since the number of
    episodes of each family is fixed (stratified sampling).
    """
    z = NormalDist().inv_cdf(0.975)
    centre, width = rate + z * z / (2 * n), z * sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return max(0.0, (centre - width) / (1 + z * z / n)), min(1.0, (centre + width) / (1 + z * z / n))
