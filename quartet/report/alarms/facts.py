"""State of a run from which the rules derive alarms (`Facts`), and the class of an alarm."""

import time
from pathlib import Path
from typing import Any

from msgspec import Struct

from quartet.config import Recipe
from quartet.files.disk import free_megabytes
from quartet.ledger import Ledger
from quartet.ledger.blobs import DamagedBlobError
from quartet.ledger.rows import Event, RepeatedError
from quartet.report.recent import (
    newest_train_metrics,
    recent_errors,
    recent_statuses,
    recent_verdicts,
    rollouts_without_action,
)
from quartet.report.status import RunStatus
from quartet.telemetry.series import read_series

MANY_ROLLOUTS = (100, 200, 400, 800, 1600)
"""Numbers of consecutive rollouts without a valid action at which the alarm is raised, and then raised again."""
RECENT_SECONDS, NEWEST_EVENTS, NEWEST_ROLLOUTS, NEWEST_GROUPS = 600.0, 200, 200, 100
NEWEST_TRAIN_STEPS = 20


class Alarm(Struct, frozen=True, kw_only=True):
    """One alarm: `what` describes the problem, `advice` says what to try."""

    kind: str
    """Identifier of the kind of problem, in snake_case."""
    what: str
    advice: str
    about: str = ""
    """Subject, such as a module's name, that distinguishes this alarm from others of the same kind."""
    level: int = 0
    """Severity; the alarm is announced again if its severity rises."""


class NoAction(Struct, frozen=True, kw_only=True):
    """Newest rollouts, none of which had a valid action."""

    rollouts: int
    """Number of newest rollouts without a valid action, rounded down to 100, 200, 400, 800 or 1600."""
    response: str
    """Last response of the newest rollout, as an example."""
    answer: str
    """The environment's error message for `response`."""


class Facts(Struct, frozen=True, kw_only=True):
    """State of a run, read once for all rules."""

    recipe: Recipe
    status: RunStatus
    events: list[Event]
    """Events of the last ten minutes, at most 200."""
    statuses: dict[str, int]
    """Statuses of the newest 200 attempts."""
    errors: dict[str, str]
    """Newest error message among the newest 200 attempts, by status."""
    repeated: RepeatedError | None
    """Error with which the newest rollouts failed, one after another; None if the newest rollout did not fail."""
    no_action: NoAction | None
    """Newest rollouts without a valid action; None if one of the newest 100 had one."""
    verdicts: dict[str, int]
    """Number of judged groups among the newest 100, by drop reason; "" counts the kept groups."""
    train_steps: list[dict[str, Any]]
    """Metrics of the newest 20 train steps, newest first."""
    canary_gap_nats: float | None
    """Largest canary gap between engine and trainer (`engine/canary_gap_nats`), over the policies loaded
    in the last ten minutes; None if no policy was loaded, or none has a canary."""
    free_megabytes: float


def read_facts(run_dir: Path, ledger: Ledger, recipe: Recipe, status: RunStatus) -> Facts:
    """Read the state of a live run. The time taken does not grow with the length of the run."""
    since = time.time() - RECENT_SECONDS
    return Facts(
        recipe=recipe,
        status=status,
        events=[event for event in ledger.events(NEWEST_EVENTS) if event.time > since],
        statuses=recent_statuses(ledger, NEWEST_ROLLOUTS),
        errors=recent_errors(ledger, NEWEST_ROLLOUTS),
        repeated=ledger.trajectories.identical_errors(recipe.most_identical_errors),
        no_action=_no_action(ledger),
        verdicts=recent_verdicts(ledger, NEWEST_GROUPS),
        train_steps=newest_train_metrics(ledger, NEWEST_TRAIN_STEPS),
        canary_gap_nats=_largest_canary_gap(run_dir, since),
        free_megabytes=free_megabytes(run_dir),
    )


def _no_action(ledger: Ledger) -> NoAction | None:
    """Return the newest rollouts if none had a valid action, else None.

    As long as one of the newest `MANY_ROLLOUTS[0]` rollouts has a valid action, no more rows than these are read.
    """
    if rollouts_without_action(ledger, MANY_ROLLOUTS[0])[0] < MANY_ROLLOUTS[0]:
        return None
    count, blob = rollouts_without_action(ledger, MANY_ROLLOUTS[-1])
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
    """Return the largest canary gap, in nats, of the policies loaded after `since` (Unix seconds), or None."""
    page = read_series(run_dir, ["engine/canary_gap_nats"], start=since, max_points=100)
    return max((point.max for series in page.series for point in series.points), default=None)
