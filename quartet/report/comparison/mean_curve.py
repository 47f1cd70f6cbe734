"""Mean of several seeds' curves with its interval, at numbers of tokens that all seeds have reached."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from quartet.report.comparison.intervals import Interval, interval

Curve = Sequence[tuple[float, float]]
"""Points (x, y), oldest first. Of several points with equal x the newest counts."""


class MeanPoint(NamedTuple):
    """Mean of the seeds' values at `x`, with its 95 % interval."""

    x: float
    y: Interval


def mean_curve(seeds: Sequence[Curve]) -> list[MeanPoint]:
    """Return the mean curve at each x of any seed, within the range that all seeds cover.

    Between its points a curve is interpolated linearly. It is not continued beyond its ends: the mean would otherwise
    be one of fewer seeds there, or of values that were never measured.
    """
    curves = [dict(curve) for curve in seeds]
    if not curves or not all(curves):
        return []
    first, last = max(min(curve) for curve in curves), min(max(curve) for curve in curves)
    places = sorted({x for curve in curves for x in curve if first <= x <= last})
    rows = [np.interp(places, sorted(curve), [curve[x] for x in sorted(curve)]) for curve in curves]
    return [MeanPoint(x, interval(values.tolist())) for x, values in zip(places, np.transpose(rows), strict=True)]
