"""Shared style of the figures, and functions that draw lines and legends and compute means over a method's runs."""

from collections.abc import Sequence
from math import nan
from statistics import fmean
from typing import Any, Literal, NamedTuple

from matplotlib.axes import Axes

from quartet.report.comparison.groups import Group
from quartet.report.paper.reported_run import ReportedRun
from quartet.telemetry.series import Point

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Palette by Okabe and Ito, suitable for colour-blind readers."""
BEFORE = "#b9c2cc"
WIDTH_INCHES = 6.5
STYLE: dict[Any, Any] = {
    **{"font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "legend.fontsize": 7, "legend.frameon": False},
    **{"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#eceff2"},
    **{
        "axes.axisbelow": True,
        "lines.linewidth": 1.2,
        "svg.hashsalt": "quartet",
        "figure.constrained_layout.use": True,
    },
}


class Method(NamedTuple):
    """Runs of one group, and the colour in which all figures draw them."""

    label: str
    colour: str
    runs: list[ReportedRun]


def methods(groups: Sequence[Group], runs: Sequence[ReportedRun]) -> list[Method]:
    """Return one `Method` per group, with the reported runs of that group."""
    by_run = {run.result.run: run for run in runs}
    return [
        Method(group.label, COLOURS[place % len(COLOURS)], [by_run[result.run] for result in group.runs])
        for place, group in enumerate(groups)
    ]


def curves(axes: Axes, shown: Sequence[Method], name: str) -> None:
    for method in shown:
        for run in method.runs:
            points = run.series[name]
            line(axes, [run.minutes(point) for point in points], [point.mean for point in points], method)


def line(
    axes: Axes,
    x: Sequence[float],
    y: Sequence[float],
    method: Method,
    *,
    alpha: float = 0.9,
    marker: str = "",
    scale: float = 1.0,
) -> None:
    axes.plot(x, [scale * value for value in y], color=method.colour, alpha=alpha, marker=marker, markersize=3)


def legend(axes: Axes, shown: Sequence[Method], loc: Literal["lower right", "center left"] = "lower right") -> None:
    """Draw a legend with one entry per method, however many lines (seeds) it has."""
    for method in shown:
        axes.plot([], [], color=method.colour, label=f"{method.label} ({len(method.runs)})")
    axes.legend(loc=loc)


def mean_rate(method: Method, family: str, when: str) -> float:
    """Return the mean success rate of a family over the method's runs, in percent; NaN, which is not drawn, if no run
    has the rate. `when` is `before` or `after` training."""
    rates = [run.summary["per_task"].get(family, {}).get(when) for run in method.runs]
    known = [rate for rate in rates if rate is not None]
    return 100 * fmean(known) if known else nan


def smooth(points: Sequence[Point], weight: float = 0.8) -> list[float]:
    """Return the exponential moving average of the points' means."""
    smoothed: list[float] = []
    for point in points:
        smoothed.append(weight * smoothed[-1] + (1 - weight) * point.mean if smoothed else point.mean)
    return smoothed
