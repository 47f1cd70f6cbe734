"""Medians of the runs of a mode, and ratios of two modes within a repetition."""

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.modes.figures import Figures


def median_ratio(ours: Sequence[Figures], others: Sequence[Figures], figure: str) -> float:
    """The median of the ratios within each repetition; entry i of both is of the same one."""
    pairs = zip(ours, others, strict=True)
    return round(statistics.median(getattr(mine, figure) / getattr(other, figure) for mine, other in pairs), 3)


def medians(runs: Sequence[Figures]) -> dict[str, Any]:
    """Median of every number; lags are summed."""
    numbers: dict[str, Any] = {}
    for figure in Figures.__struct_fields__:
        values = [getattr(one, figure) for one in runs]
        if figure == "lag_histogram":
            lags = sorted({lag for value in values for lag in value})
            numbers[figure] = {lag: sum(value.get(lag, 0) for value in values) for lag in lags}
        else:
            numbers[figure] = round(statistics.median(values), 4)
    return numbers
