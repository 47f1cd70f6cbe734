"""Runs of modes paired by repetition, their medians, and ratios of two modes within a repetition."""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, TypeVar

from benchmarks.modes.figures import Figures
from benchmarks.raw_results import RawResults

T = TypeVar("T")


def paired(raw: RawResults[T], name: str) -> dict[str, list[T]]:
    """Return the runs by the entry `name` of their keys, in the order of their seeds, over the seeds that all have.

    So runs at the same index are from the same repetition.
    """
    runs: defaultdict[str, dict[int, T]] = defaultdict(dict)
    for key, result in raw.read():
        runs[key[name]][key["seed"]] = result
    seeds = sorted(set.intersection(*(set(of_name) for of_name in runs.values())))
    return {of: [of_name[seed] for seed in seeds] for of, of_name in runs.items()}


def ratios(ours: Sequence[object], others: Sequence[object], figure: str) -> list[float]:
    """Return the ratio within each repetition; entry i of both is of repetition i."""
    return [getattr(mine, figure) / getattr(other, figure) for mine, other in zip(ours, others, strict=True)]


def median_ratio(ours: Sequence[object], others: Sequence[object], figure: str) -> float:
    """Return the median of the ratios within each repetition."""
    return round(statistics.median(ratios(ours, others, figure)), 3)


def shown_ratio(ours: Sequence[object], others: Sequence[object], figure: str) -> str:
    """Return the median of the ratios within each repetition, and the lowest and the highest one, as text."""
    found = ratios(ours, others, figure)
    return f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


def medians(runs: Sequence[Figures]) -> dict[str, Any]:
    """Return the median of every number over the runs; lag histograms are summed."""
    numbers: dict[str, Any] = {}
    for figure in Figures.__struct_fields__:
        values = [getattr(one, figure) for one in runs]
        if figure == "lag_histogram":
            lags = sorted({lag for value in values for lag in value})
            numbers[figure] = {lag: sum(value.get(lag, 0) for value in values) for lag in lags}
        else:
            numbers[figure] = round(statistics.median(values), 4)
    return numbers
