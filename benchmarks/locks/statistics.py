"""Paired comparisons over seeds: means and ratios of means with 95 % intervals of Student's t."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean

from benchmarks.locks.run import Result
from quartet.report.comparison import intervals

Interval = tuple[float, float, float]
"""Mean, lower and upper bound."""


def interval(values: Sequence[float]) -> Interval:
    """Return the interval of one value per seed. Raises `ValueError` for fewer than two values."""
    found = intervals.interval(values)
    if found.low is None or found.high is None:
        raise ValueError(f"an interval needs 2 values or more, not {found.n}")
    return found.mean, found.low, found.high


def ratio_of_means(values: Sequence[float], baselines: Sequence[float]) -> Interval:
    """Return mean(values) / mean(baselines) of paired seeds, with the interval of its linearisation.

    A mean of ratios per seed would be dominated by seeds with a baseline near 0. The variance is that of the residuals
    y - R x (Cochran, Sampling Techniques, 1977, eq. 2.39). Raises `ValueError` for fewer than two seeds.
    """
    mean_baseline = fmean(baselines)
    ratio = fmean(values) / mean_baseline
    residuals = [(value - ratio * baseline) / mean_baseline for value, baseline in zip(values, baselines, strict=True)]
    _, low, high = interval(residuals)
    return ratio, ratio + low, ratio + high


def area(result: Result, difficulty: str = "all") -> float:
    """Return the mean height of the success curve over generated tokens: its area divided by its width."""
    points = [(tokens, success[difficulty]) for tokens, success in result.curve]
    return sum((x1 - x0) * (y0 + y1) / 2 for (x0, y0), (x1, y1) in pairwise(points)) / (points[-1][0] - points[0][0])


def rollouts_per_trained_group(result: Result) -> float:
    """Return the rollouts per trained group; the rollouts of dropped groups count as well."""
    return result.rollouts / max(1, result.trained_groups)


def compare(results: Sequence[Result], baselines: Sequence[Result]) -> dict[str, Interval]:
    """Compare one variant with the baseline; entry i of both was run with the same seed."""
    pairs = list(zip(results, baselines, strict=True))
    report: dict[str, Interval] = {}
    for difficulty in ("hard", "medium", "easy", "all"):
        report[f"success_{difficulty}"] = interval([result.success[difficulty] for result in results])
        gains = [result.success[difficulty] - baseline.success[difficulty] for result, baseline in pairs]
        report[f"success_{difficulty}_gain"] = interval(gains)
    for name, figure in _RATIOS.items():
        report[name] = ratio_of_means(list(map(figure, results)), list(map(figure, baselines)))
    return report


_RATIOS: dict[str, Callable[[Result], float]] = {
    "area_ratio_to_grpo": area,
    "rollouts_ratio": rollouts_per_trained_group,
    "group_size_ratio": lambda result: result.rollouts / result.groups,
    "turns_ratio": lambda result: result.turns / result.rollouts,
}
"""Figures that are compared as ratios of their means."""
