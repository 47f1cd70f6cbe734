"""Data of one run for a report: results, summary, settings, and metrics over time."""

from pathlib import Path
from typing import Any

from msgspec import Struct

from quartet.ledger import Ledger
from quartet.recipe.description import ChangedSetting, settings_set
from quartet.recipe.file import CONFIG, read_with_plugins
from quartet.report.comparison.results import RunResult, read_result
from quartet.report.costs import training_began
from quartet.report.summary import build_summary, summary_of_training
from quartet.telemetry.series import Point, read_series

SERIES = (
    *("rollout/success", "train/reward_mean", "train/entropy_nats", "train/gap_k1_nats", "train/gradient_norm"),
    *("train/lag_mean_versions", "rollout/reward", "engine/generated_tokens_per_second"),
)
MAX_POINTS = 400


class ReportedRun(Struct, frozen=True, kw_only=True):
    """Data of one run in a report."""

    result: RunResult
    summary: dict[str, Any]
    settings: list[ChangedSetting]
    began: float
    """Unix seconds of the first training group; 0 for a run that did not train."""
    slot_seconds: int
    """Seconds that each point of `series` covers."""
    series: dict[str, list[Point]]
    """Points by metric name, over time and (`Point.x`) training rollouts; an empty list for a metric that was not
    recorded."""

    def minutes(self, point: Point) -> float:
        """Return the minutes from the start of training to the middle of a point, evaluations and pauses included."""
        return (point.time + self.slot_seconds / 2 - self.began) / 60


def read_run(run_dir: Path) -> ReportedRun:
    """Read a run; write nothing. Raise `LedgerError`, `ConfigError` or `RecordsError` if it cannot be read."""
    result, recipe, ledger = read_result(run_dir), read_with_plugins(run_dir / CONFIG), Ledger.view(run_dir)
    try:
        began = training_began(ledger) or 0.0
        summary = _summary(run_dir, ledger) or build_summary(recipe, ledger, wall_seconds=0.0, control=None)
    finally:
        ledger.close()
    page = read_series(run_dir, list(SERIES), axis="rollouts", max_points=MAX_POINTS)
    return ReportedRun(
        result=result,
        summary=summary,
        settings=settings_set(recipe),
        began=began,
        slot_seconds=page.slot_seconds,
        series={name: [] for name in SERIES} | {series.name: series.points for series in page.series},
    )


def _summary(run_dir: Path, ledger: Ledger) -> dict[str, Any] | None:
    """Return the summary that the run wrote at its end; None if there is none, or the run has continued since."""
    written = summary_of_training(run_dir, ledger)
    return written if written and "per_task" in written else None
