"""Paired comparisons over seeds: means with 95 % intervals of Student's t."""

from collections.abc import Sequence
from itertools import pairwise

from benchmarks.locks.run import Result
from quartet.report.comparison import intervals

Interval = tuple[float, float, float]
"""Mean, lower and upper bound."""


def interval(values: Sequence[float]) -> Interval:
    """Of one value per seed. Raises `ValueError` for fewer than two: one seed says nothing about others."""
    found = intervals.interval(values)
    if found.low is None or found.high is None:
        raise ValueError(f"an interval needs 2 values or more, not {found.n}")
    return found.mean, found.low, found.high


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
