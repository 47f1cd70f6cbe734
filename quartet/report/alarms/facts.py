"""What the alarms look at, and what one says."""

import time
from pathlib import Path
from typing import Any

from msgspec import Struct

from quartet.config import Recipe
from quartet.files.disk import free_megabytes
from quartet.ledger import Ledger
from quartet.ledger.blobs import DamagedBlobError
from quartet.ledger.rows import Event, RepeatedError
from quartet.report.status import RunStatus
from quartet.telemetry.series import read_series

MANY_ROLLOUTS = (100, 200, 400, 800, 1600)
"""Rollouts without a valid action after which it is said, and said again."""
RECENT_SECONDS, NEWEST_EVENTS, NEWEST_ROLLOUTS, NEWEST_GROUPS = 600.0, 200, 200, 100
NEWEST_TRAIN_STEPS = 20


class Alarm(Struct, frozen=True, kw_only=True):
    """One finding for a person."""

    kind: str
    """A short snake_case word."""
    what: str
    advice: str
    about: str = ""
    """What tells it from others of its kind: a module's name."""
    level: int = 0
    """A higher one is announced again."""


class NoAction(Struct, frozen=True, kw_only=True):
    """A policy that says nothing an environment can do."""

    rollouts: int
    """The newest so many hold no valid action: 100, 200, 400, 800 or 1600."""
    response: str
    """One of its responses."""
    answer: str
    """What the environment answered to it."""


class Facts(Struct, frozen=True, kw_only=True):
    """What the rules look at."""

    recipe: Recipe
    status: RunStatus
    events: list[Event]
    """Of the last ten minutes."""
    statuses: dict[str, int]
    """How the newest 200 attempts ended."""
    errors: dict[str, str]
    """By status: what the newest of these attempts failed with."""
    repeated: RepeatedError | None
    """The error that the newest rollouts all failed with."""
    no_action: NoAction | None
    """Set when none of the newest 100 rollouts held a valid action."""
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
        errors=ledger.recent_errors(NEWEST_ROLLOUTS),
        repeated=ledger.identical_errors(recipe.most_identical_errors),
        no_action=_no_action(ledger),
        verdicts=ledger.recent_verdicts(NEWEST_GROUPS),
        train_steps=ledger.newest_train_metrics(NEWEST_TRAIN_STEPS),
        canary_gap_nats=_largest_canary_gap(run_dir, since),
        free_megabytes=free_megabytes(run_dir),
    )


def _no_action(ledger: Ledger) -> NoAction | None:
    """The cost is that of `MANY_ROLLOUTS[0]` rows as long as one of them holds an action."""
    if ledger.rollouts_without_action(MANY_ROLLOUTS[0])[0] < MANY_ROLLOUTS[0]:
        return None
    count, blob = ledger.rollouts_without_action(MANY_ROLLOUTS[-1])
    try:
        turns = ledger.store.load(blob).turns
    except DamagedBlobError:
        turns = []
    return NoAction(
        rollouts=max(many for many in MANY_ROLLOUTS if many <= count),
        response=turns[-1].response if turns else "",
        answer=turns[-1].error if turns else "",
    )


def _largest_canary_gap(run_dir: Path, since: float) -> float | None:
    """In nats, of the policies loaded after `since` (Unix seconds)."""
    page = read_series(run_dir, ["engine/canary_gap_nats"], start=since, max_points=100)
    return max((point.max for series in page.series for point in series.points), default=None)
