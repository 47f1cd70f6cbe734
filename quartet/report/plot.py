"""Picture of a run: success against training rollouts, and success per task before and after training."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quartet.manager.evaluation import DURING
from quartet.telemetry.series import Point, read_series

matplotlib.use("Agg")

BEFORE, AFTER, CONTROL = "#b9c2cc", "#0b6e8f", "#d8903c"
"""Colours that colour-blind readers can tell apart, also when printed in grey."""
TOP = 102.0
"""Upper end of the percent axis, slightly over 100 so that a marker at 100 is not cut."""
LEAST_TASK_ROWS = 6
"""Minimum number of rows, so that a single bar does not fill the picture."""


class Level(NamedTuple):
    """Success rate that is drawn as a horizontal line; `key` is its name in the summary."""

    key: str
    name: str
    colour: str
    style: str


LEVELS = (
    Level("success_before", "before", AFTER, ":"),
    Level("success_after", "after", AFTER, "--"),
    Level("success_control", "control", CONTROL, "--"),
)
"""Levels of the picture. `control` is a policy trained by supervision for the same time."""


def draw_run(run_dir: Path, summary: dict[str, Any]) -> Path:
    """Write `success.png` into the run and return its path."""
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    curve, bars = figure.subplots(1, 2, width_ratios=[1.2, 1])
    _draw_curve(curve, run_dir, summary)
    draw_tasks(bars, summary["per_task"])
    path = run_dir / "success.png"
    figure.savefig(path, dpi=130)
    return path


def _draw_curve(axes: Axes, run_dir: Path, summary: dict[str, Any]) -> None:
    counted = _training(run_dir)
    axes.plot(
        [rollouts for rollouts, *_ in counted],
        _smooth([(100 * share, groups) for _, share, groups in counted]),
        color=BEFORE,
        label="training groups, as drawn by the sampler",
    )
    for label, style, during in (("reported seeds", "s", False), ("selection seeds", "o-", True)):
        points = [point for point in summary["learning_curve"] if point["tag"].startswith(DURING) == during]
        if points:
            percents = [100 * point["success"] for point in points]
            rollouts = [point["rollouts"] for point in points]
            axes.plot(rollouts, percents, style, color=AFTER, label=f"held out, greedy: {label}")
    _draw_levels(axes, {level: 100 * value for level in LEVELS if (value := summary.get(level.key)) is not None})
    axes.set(xlabel="training rollouts", ylabel="success, %", ylim=(0, TOP), title="Success against rollouts")
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.1), ncols=2, frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_levels(axes: Axes, levels: dict[Level, float]) -> None:
    """Draw a horizontal line per level. Its name and value are to the right of the axes, where no curve covers them."""
    for (level, percent), height in zip(levels.items(), apart(list(levels.values())), strict=True):
        axes.axhline(percent, color=level.colour, linestyle=level.style, linewidth=1.2)
        axes.annotate(
            f"{level.name} {percent:.0f} %",
            (1.01, height),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=8,
            color=level.colour,
        )


def apart(heights: list[float], least: float = 4.0, top: float = TOP) -> list[float]:
    """Return positions for labels near `heights`, at least `least` apart from each other and not above `top`."""
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    placed = list(heights)
    for below, above in pairwise(order):
        placed[above] = max(placed[above], placed[below] + least)
    limit = top
    for place in reversed(order):
        placed[place] = min(placed[place], limit)
        limit = placed[place] - least
    return placed


def _training(run_dir: Path) -> list[tuple[float, float, int]]:
    """Return (rollouts until then, success rate, number of groups) of the training groups."""
    successes, members = _points(run_dir, "data/group_successes"), _points(run_dir, "data/group_members")
    return [(s.x, s.sum / m.sum, s.count) for s, m in zip(successes, members, strict=True) if m.sum]


def _points(run_dir: Path, name: str) -> list[Point]:
    (series,) = read_series(run_dir, [name], axis="rollouts").series or [None]
    return series.points if series else []


def draw_tasks(axes: Axes, per_task: dict[str, dict[str, float | None]]) -> None:
    """Draw the success of each task family, before and after; families without a result after come last."""

    def percent(name: str, key: str) -> float:
        success = per_task[name][key]
        return math.nan if success is None else 100 * success

    def order(name: str) -> list[float]:
        return [-1.0 if math.isnan(one := percent(name, key)) else one for key in ("after", "before")]

    names = sorted(per_task, key=order)
    places = range(len(names))
    for key, colour, height in (("after", AFTER, 0.72), ("before", BEFORE, 0.3)):
        axes.barh(places, [percent(name, key) for name in names], height=height, color=colour, label=key)
    # A missing bar could also be 0 %.
    labels = [f"{name} (no result)" if math.isnan(percent(name, "after")) else name for name in names]
    axes.set_yticks(list(places), labels, fontsize=8)
    rows = max(len(names), LEAST_TASK_ROWS)
    axes.set(
        xlabel="success on held-out seeds, %",
        xlim=(0, 100),
        title="Per task",
        ylim=(len(names) - rows - 0.5, len(names) - 0.5),
    )
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.1), ncols=2, frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _smooth(values: list[tuple[float, int]], weight: float = 0.95) -> list[float]:
    """Return the exponential moving averages of means, given as pairs (mean, number of groups in it).

    `weight` is the decay for each group.
    """
    smoothed: list[float] = []
    for value, count in values:
        kept = weight**count if smoothed else 0.0
        smoothed.append((kept * smoothed[-1] if smoothed else 0.0) + (1 - kept) * value)
    return smoothed
