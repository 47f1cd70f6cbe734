"""The curves of the Run page: which metrics, how a point of many records becomes one number, and their transport."""

from typing import Any, Literal

from msgspec import Struct

from quartet.report.panel import MODULE_ORDER
from quartet.telemetry.series import Axis, Series, SeriesPage, read_series
from quartet.web.viewed_run import ViewedRun

MAX_POINTS = 500
"""Per curve; a zoom asks for finer ones."""
_BETWEEN_CURSORS = "~"
Take = Literal["mean", "max", "rate"]
"""What a point shows of its records: their mean, the largest, or how many per second."""


class Curve(Struct, frozen=True):
    metric: str
    label: str
    take: Take = "mean"
    marked: bool = False
    """Few and far between: drawn with a mark at each point, never smoothed."""


class Chart(Struct, frozen=True):
    """One picture. `metric/thing` curves share its axis; with `by_role` there is one curve per process."""

    key: str
    title: str
    unit: str
    curves: tuple[Curve, ...]
    by_role: bool = False
    share: bool = False
    """Between 0 and 1, shown in per cent."""


CHARTS = (
    Chart(
        "success",
        "Success",
        "%",
        (Curve("rollout/success", "training"), Curve("evaluation/success", "held-out, selection seeds", marked=True)),
        share=True,
    ),
    Chart("reward", "Reward", "per rollout", (Curve("rollout/reward", "training"),)),
    Chart(
        "lag",
        "Lag",
        "versions",
        (Curve("train/lag_mean_versions", "mean"), Curve("train/lag_max_versions", "largest", "max")),
    ),
    Chart("entropy", "Entropy", "nats per token", (Curve("train/entropy_nats", "trained tokens"),)),
    Chart(
        "gap",
        "Log-prob gap",
        "nats per token",
        (
            Curve("train/gap_k1_nats", "engine − trainer"),
            Curve("train/gap_k3_nats", "k3 estimate"),
            Curve("engine/canary_gap_nats", "canary, largest", "max"),
        ),
    ),
    Chart("gradient", "Gradient norm", "before clipping", (Curve("train/gradient_norm", "mean of the step"),)),
    Chart(
        "tokens",
        "Tokens",
        "per second",
        (Curve("engine/generated_tokens_per_second", "sampled"), Curve("engine/prompt_tokens_per_second", "prompt")),
    ),
    Chart(
        "rollouts",
        "Rollouts",
        "per second",
        (Curve("rollout/success", "training", "rate"), Curve("rollout/evaluation_success", "evaluation", "rate")),
    ),
    Chart(
        "waiting", "Waiting", "% of the time", (Curve("module/waiting_fraction", "waiting"),), by_role=True, share=True
    ),
)


def curves_of(
    run: ViewedRun, axis: Axis, *, cursor: str = "", start: float | None = None, end: float | None = None
) -> dict[str, Any]:
    """All curves of one run as JSON: whole, between two Unix seconds, or with the `cursor` of an earlier answer only
    what came since. Raises `ConfigError` for a cursor that is none, `RecordsError` for a run of an older Quartet."""
    cursors = cursor.partition(_BETWEEN_CURSORS)[::2]
    curves, pages = [], []
    for by_role, known in zip((False, True), cursors, strict=True):
        charts = [chart for chart in CHARTS if chart.by_role == by_role]
        names = sorted({curve.metric for chart in charts for curve in chart.curves})
        page = read_series(
            run.run_dir, names, axis=axis, start=start, end=end, cursor=known, max_points=MAX_POINTS, by_role=by_role
        )
        curves += [curve for chart in charts for curve in _of_chart(chart, page)]
        pages.append(page)
    if not cursor and start is None:
        curves.append(_before_and_after(run, axis))
    return {"curves": curves, "cursor": _BETWEEN_CURSORS.join(page.cursor for page in pages)}


def _of_chart(chart: Chart, page: SeriesPage) -> list[dict[str, Any]]:
    return [
        {
            "chart": chart.key,
            "label": series.role or curve.label,
            "take": curve.take,
            "marked": curve.marked,
            "slot_seconds": page.slot_seconds,
            "replaces": page.replaces,
            "points": [_packed(point.x, point.time, point.count, point.sum, point.max) for point in series.points],
        }
        for curve in chart.curves
        for series in sorted(page.series, key=_place)
        if series.name == curve.metric
    ]


def _before_and_after(run: ViewedRun, axis: Axis) -> dict[str, Any]:
    """The greedy evaluations around the training, which the ledger keeps: points of the held-out curve."""
    points = []
    for result in run.ledger.held_out_results():
        x = {"time": result.time, "train_step": result.train_step, "version": result.version}[axis]
        points.append(_packed(x, result.time, 1, result.success, result.success))
    return {
        "chart": "success",
        "label": "held-out",
        "take": "mean",
        "marked": True,
        "slot_seconds": 0,
        "replaces": False,
        "points": points,
    }


def _packed(x: float, time: float, count: int, total: float, largest: float) -> list[float]:
    """One point: place, Unix seconds, number of records, their sum, the largest; six digits are enough to draw."""
    return [x, time, count, float(f"{total:.6g}"), float(f"{largest:.6g}")]


def _place(series: Series) -> tuple[int, str]:
    """Processes in the order in which they stand everywhere."""
    base = series.role.partition("-")[0]
    return (MODULE_ORDER.index(base) if base in MODULE_ORDER else len(MODULE_ORDER), series.role)
