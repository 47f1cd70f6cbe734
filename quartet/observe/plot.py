"""The picture of a run: success over time, and per task before and after."""

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quartet.observe.record import read_records

matplotlib.use("Agg")

BEFORE, AFTER, CONTROL = "#b9c2cc", "#0b6e8f", "#d8903c"
"""Told apart by the colour-blind and in grey."""


def draw_run(run_dir: Path, summary: dict[str, Any]) -> Path:
    """Write `success.png` into the run and return its path."""
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    curve, bars = figure.subplots(1, 2, width_ratios=[1.2, 1])
    _draw_curve(curve, read_records(run_dir / "metrics.jsonl"), summary)
    _draw_tasks(bars, summary["per_task"])
    path = run_dir / "success.png"
    figure.savefig(path, dpi=130)
    return path


def _draw_curve(axes: Axes, records: list[dict[str, Any]], summary: dict[str, Any]) -> None:
    groups = [r for r in records if r["kind"] == "group" and r["members"]]
    evaluations = [r for r in records if r["kind"] == "evaluation"]
    start = min((r["time"] for r in groups), default=0.0)
    axes.plot(
        [(r["time"] - start) / 60 for r in groups],
        _smooth([100 * r["successes"] / r["members"] for r in groups]),
        color=BEFORE,
        label="training groups, as control draws them",
    )
    held_out = [
        (0.0, summary.get("success_before")),
        *(((r["time"] - start) / 60, r["success"]) for r in evaluations),
        ((summary.get("train_seconds") or 0.0) / 60, summary.get("success_after")),
    ]
    minutes, successes = [minute for minute, s in held_out if s is not None], [s for _, s in held_out if s is not None]
    axes.plot(minutes, [100 * s for s in successes], color=AFTER, marker="o", label="held-out seeds, greedy")
    for key, colour, style, name in (
        ("success_before", AFTER, ":", "before"),
        ("success_after", AFTER, "--", "after"),
        ("success_control", CONTROL, "--", "control: supervised, same time"),
    ):
        if summary.get(key) is not None:
            axes.axhline(100 * summary[key], color=colour, linestyle=style, linewidth=1.2)
            axes.annotate(
                f"{name} {100 * summary[key]:.0f} %",
                (1.0, 100 * summary[key]),
                xycoords=("axes fraction", "data"),
                ha="right",
                va="bottom",
                fontsize=8,
                color=colour,
            )
    axes.set(xlabel="minutes of training", ylabel="success, %", ylim=(0, 102), title="Success over time")
    axes.legend(loc="lower right", frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_tasks(axes: Axes, per_task: dict[str, dict[str, float | None]]) -> None:
    names = sorted(per_task, key=lambda name: (per_task[name]["after"] or 0.0, per_task[name]["before"] or 0.0))
    places = range(len(names))
    for key, colour, height in (("after", AFTER, 0.72), ("before", BEFORE, 0.3)):
        axes.barh(places, [100 * (per_task[n][key] or 0.0) for n in names], height=height, color=colour, label=key)
    axes.set_yticks(list(places), names, fontsize=8)
    axes.set(xlabel="success on held-out seeds, %", xlim=(0, 100), title="Per task")
    axes.legend(loc="lower left", bbox_to_anchor=(0, -0.14), ncols=2, frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _smooth(values: list[float], weight: float = 0.95) -> list[float]:
    """Exponential moving average."""
    smoothed: list[float] = []
    for value in values:
        smoothed.append(value if not smoothed else weight * smoothed[-1] + (1 - weight) * value)
    return smoothed
