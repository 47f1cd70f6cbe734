"""What the alarms look at, and what one says."""

import time
from pathlib import Path
from typing import Any

from msgspec import Struct

from quartet.config import Recipe
from quartet.data.disk import free_megabytes
from quartet.data.ledger import Ledger
from quartet.data.rows import Event
from quartet.observe.series import read_series
from quartet.observe.status import RunStatus

RECENT_SECONDS, NEWEST_EVENTS, NEWEST_ROLLOUTS, NEWEST_GROUPS = 600.0, 200, 200, 100
NEWEST_TRAIN_STEPS = 20


class Alarm(Struct, frozen=True, kw_only=True):
    """One finding for a person."""

    kind: str
    """A short snake_case word."""
    what: str
    advice: str


class Facts(Struct, frozen=True, kw_only=True):
    """What the rules look at."""

    recipe: Recipe
    status: RunStatus
    events: list[Event]
    """Of the last ten minutes."""
    statuses: dict[str, int]
    """How the newest 200 attempts ended."""
    verdicts: dict[str, int]
    """Of the newest 100 groups, by the reason of their drop; "" for the kept."""
    train_steps: list[dict[str, Any]]
    """Metrics of the newest 20 train steps, newest first."""
    canary_gap_nats: float | None
    """The largest of the policies loaded in the last ten minutes; None when none was, or none has a canary."""
    free_megabytes: float


def read_facts(run_dir: Path, ledger: Ledger, recipe: Recipe, status: RunStatus) -> Facts:
    """Those of a run at work; the cost does not grow with the run."""
    since = time.time() - RECENT_SECONDS
    return Facts(
        recipe=recipe,
        status=status,
        events=[event for event in ledger.events(NEWEST_EVENTS) if event.time > since],
        statuses=ledger.recent_statuses(NEWEST_ROLLOUTS),
        verdicts=ledger.recent_verdicts(NEWEST_GROUPS),
        train_steps=ledger.newest_train_metrics(NEWEST_TRAIN_STEPS),
        canary_gap_nats=_largest_canary_gap(run_dir, since),
        free_megabytes=free_megabytes(run_dir),
    )


def _largest_canary_gap(run_dir: Path, since: float) -> float | None:
    """In nats, of the policies loaded after `since` (Unix seconds)."""
    page = read_series(run_dir, ["engine/canary_gap_nats"], start=since, max_points=100)
    return max((point.max for series in page.series for point in series.points), default=None)
