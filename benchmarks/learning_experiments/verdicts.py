"""Verdicts on the claims of an experiment: Student's t over seeds, corrected for the number of claims."""

from collections.abc import Sequence
from math import atan, cos, pi, sin, sqrt
from statistics import fmean, stdev
from typing import NamedTuple

from benchmarks.learning_experiments.base import Claim
from benchmarks.locks.statistics import Interval, interval

LEVEL = 0.05
"""Probability of at least one wrong verdict among the claims of an experiment, if each bound is the true mean."""


class Verdict(NamedTuple):
    """A claim with what was measured."""

    claim: Claim
    measured: Interval
    """Mean and 95 % interval, of this claim alone."""
    p: float
    """Two-sided p-value of the difference to the bound, after Holm's correction."""

    @property
    def holds(self) -> str:
        """`yes` if the mean is on the claim's side of the bound, `no` if on the other, both with p at most 0.05."""
        if self.p > LEVEL:
            return "not shown"
        above = self.measured[0] > self.claim.bound
        return "yes" if above == (self.claim.above is not None) else "no"


def verdicts(measured: Sequence[tuple[Claim, Sequence[float]]]) -> list[Verdict]:
    """Return the verdicts on all claims of an experiment, each with one value per seed."""
    corrected = holm([p_value(values, claim.bound) for claim, values in measured])
    return [Verdict(claim, interval(values), p) for (claim, values), p in zip(measured, corrected, strict=True)]


def p_value(values: Sequence[float], bound: float) -> float:
    """Return the two-sided p-value of Student's t test of the mean against `bound`.

    For equal values it is that of the sign test: they are equal because of the unit in which they are counted, such as
    batches, which is no certainty.
    """
    distance, spread = abs(fmean(values) - bound), stdev(values) / sqrt(len(values))
    if spread == 0:
        return 2.0 ** (1 - len(values)) if distance else 1.0
    return two_sided(distance / spread, len(values) - 1)


def two_sided(t: float, degrees: int) -> float:
    """Return the probability that Student's t with `degrees` degrees of freedom is beyond `t` on either side.

    The sums are exact (Abramowitz and Stegun 26.7.3 and 26.7.4).
    """
    angle = atan(t / sqrt(degrees))
    odd = degrees % 2
    term, total = (cos(angle) if odd else 1.0), 0.0
    for power in range(1 + odd, degrees, 2):
        total += term
        term *= power / (power + 1) * cos(angle) ** 2
    within = 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total
    return max(0.0, 1 - within)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number (Holm 1979), in the same order."""
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, number in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[number]))
        corrected[number] = largest
    return corrected
