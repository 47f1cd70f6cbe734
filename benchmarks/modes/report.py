"""Medians of the runs of a mode, and ratios of two modes within a repetition."""

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.modes.figures import Figures


def ratios(ours: Sequence[Figures], others: Sequence[Figures], figure: str) -> list[float]:
    """Return the ratio within each repetition; entry i of both is of repetition i."""
    return [getattr(mine, figure) / getattr(other, figure) for mine, other in zip(ours, others, strict=True)]


def median_ratio(ours: Sequence[Figures], others: Sequence[Figures], figure: str) -> float:
    """Return the median of the ratios within each repetition."""
    return round(statistics.median(ratios(ours, others, figure)), 3)


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
