"""Paired comparisons over seeds: means with 95 % intervals of Student's t."""

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
from statistics import fmean, stdev

from benchmarks.locks.run import Result

Interval = tuple[float, float, float]
"""Mean, lower and upper bound."""
_T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Student's t at 97.5 % for 1, 2, ... degrees of freedom."""


def interval(values: Sequence[float]) -> Interval:
    """Mean of 2 to 16 values, one per seed, with its 95 % interval. Raises `ValueError` for another number."""
    if not 2 <= len(values) <= len(_T_975) + 1:
        raise ValueError(f"an interval needs 2 to {len(_T_975) + 1} values, not {len(values)}")
    mean, half = fmean(values), _T_975[len(values) - 2] * stdev(values) / sqrt(len(values))
    return mean, mean - half, mean + half


def area(result: Result, difficulty: str = "all") -> float:
    """Mean height of the success curve over generated tokens: its area, divided by its width."""
    points = [(tokens, success[difficulty]) for tokens, success in result.curve]
    return sum((x1 - x0) * (y0 + y1) / 2 for (x0, y0), (x1, y1) in pairwise(points)) / (points[-1][0] - points[0][0])


def rollouts_per_trained_group(result: Result) -> float:
    """What one group that had contrast cost; groups that were dropped are paid as well."""
    return result.rollouts / max(1, result.trained_groups)


def compare(results: Sequence[Result], baselines: Sequence[Result]) -> dict[str, Interval]:
    """One variant against the baseline: entry i of both was run with the same seed."""
    pairs = list(zip(results, baselines, strict=True))
    report: dict[str, Interval] = {}
    for difficulty in ("hard", "medium", "easy", "all"):
        report[f"success_{difficulty}"] = interval([result.success[difficulty] for result in results])
        gains = [result.success[difficulty] - baseline.success[difficulty] for result, baseline in pairs]
        report[f"success_{difficulty}_gain"] = interval(gains)
    report["area_ratio_to_grpo"] = interval([area(result) / area(baseline) for result, baseline in pairs])
    report["rollouts_ratio"] = interval(
        [rollouts_per_trained_group(result) / rollouts_per_trained_group(baseline) for result, baseline in pairs]
    )
    report["group_size_ratio"] = interval(
        [(result.rollouts / result.groups) / (baseline.rollouts / baseline.groups) for result, baseline in pairs]
    )
    report["turns_ratio"] = interval(
        [(result.turns / result.rollouts) / (baseline.turns / baseline.rollouts) for result, baseline in pairs]
    )
    return report
