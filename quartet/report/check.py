"""Verification of the ledger's invariants and of every blob's checksum."""

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from msgspec import Struct, to_builtins

from quartet.ledger import Ledger
from quartet.ledger.beginnings import read_beginning
from quartet.ledger.blobs import BlobStore, DamagedBlobError
from quartet.ledger.counters import WRONG_SIZES, WRONG_UNFINISHED
from quartet.ledger.pictures import pictures_of
from quartet.ledger.policy_folders import policies_root
from quartet.ledger.recovery import checkpoint_progress, committed_checkpoints, has_folder, recovery_points
from quartet.ledger.schema import (
    HAS_BEGINNING,
    REPLAY,
    TrajectoryKind,
    batches,
    groups,
    replays,
    rollouts,
    trajectories,
    uses,
)
from quartet.ledger.trajectory_store import TrajectoryStore
from quartet.on_progress import OnProgress, no_progress
from quartet.report.staleness import over_lag
from quartet.report.totals import run_totals
from quartet.types import BatchState, GroupState, Purpose, RolloutState, Status

_PAGE_ROWS = 1000
_STATES = ((rollouts, RolloutState), (groups, GroupState), (batches, BatchState))

_JOINED = (
    sa.select(replays.c.id)
    .join(groups, replays.c.group_id == groups.c.id)
    .where(replays.c.trajectory_id == uses.c.trajectory_id, groups.c.batch_id == uses.c.batch_id)
)
_STRANGERS = sa.select(uses.c.id).where(uses.c.role == REPLAY, ~uses.c.voided, ~_JOINED.exists()).subquery()

_PARENT, _RECORD = rollouts.alias("parent"), trajectories.alias("record_of_parent")
_ORPHANS = (
    sa.select(rollouts.c.id, rollouts.c.parent_id)
    .join(trajectories, trajectories.c.rollout_id == rollouts.c.id)
    .where(
        rollouts.c.parent_id.is_not(None),
        rollouts.c.purpose == Purpose.TRAIN,
        trajectories.c.counted,
        rollouts.c.group_id.in_(sa.select(groups.c.id).where(groups.c.state != GroupState.OPEN)),
        ~sa.exists().where(
            _PARENT.c.id == rollouts.c.parent_id,
            _PARENT.c.group_id == rollouts.c.group_id,
            _RECORD.c.rollout_id == _PARENT.c.id,
            _RECORD.c.kind == TrajectoryKind.FINAL,
        ),
    )
    .order_by(rollouts.c.id)
)
"""Select counted children whose parent has no final record in their group. Open groups are left out, since their
parents may still be running."""


class Finding(Struct, frozen=True, kw_only=True):
    """A violated invariant. `kind` is a short snake_case word."""

    kind: str
    what: str


class CheckReport(Struct, frozen=True, kw_only=True):
    """Result of a check: the numbers of records read, and the findings."""

    trajectories: int
    blobs: int
    """Number of distinct blobs of trajectories that were read."""
    findings: list[Finding]

    def to_dict(self) -> dict[str, Any]:
        return to_builtins(self)


def check_ledger(ledger: Ledger, max_lag: int | None = None, on_progress: OnProgress = no_progress) -> CheckReport:
    """Read the whole ledger and every blob it refers to, once.

    `max_lag` is the run's lag bound; without it the lag of trained tokens is not checked. A blob whose trajectory is
    already marked damaged is not a finding.
    """
    findings = [*_unknown_states(ledger), *_broken_promises(ledger), *_orphans(ledger)]
    findings += _lost_files(ledger)
    findings += _wrong_counts(ledger)
    findings += _damaged_beginnings(ledger)
    if max_lag is not None:
        findings += [Finding(kind="over_lag", what=what) for one in ledger.each() for what in over_lag(one, max_lag)]
    read: set[str] = set()
    sound: set[str] = set()
    count, total = 0, _newest_trajectory(ledger)
    for row, pictures in _all_trajectories(ledger):
        count += 1
        on_progress(row.id, total)
        new = [digest for digest in pictures if digest not in sound]
        damage = [] if row.blob in sound and not new else _damage(ledger.store, row.id, row.blob, new)
        findings += damage if damage and _still_named(ledger, row.id, new) else []
        read.update((row.blob, *pictures))
        sound.update(() if damage else (row.blob, *new))
    return CheckReport(trajectories=count, blobs=len(read), findings=findings)


def _wrong_counts(ledger: Ledger) -> Iterator[Finding]:
    """Compare the counts that triggers keep with the rows."""
    with ledger.read() as connection:
        for row in connection.execute(WRONG_UNFINISHED).all():
            what = f"group {row.id} has {row.counted} unfinished rollouts, its row says {row.stored}"
            yield Finding(kind="wrong_count", what=what)
        for row in connection.execute(WRONG_SIZES).all():
            what = f"the stored number of {row.state} groups of policy {row.policy}, or of their rollouts, is wrong"
            yield Finding(kind="wrong_count", what=what)


def _newest_trajectory(ledger: Ledger) -> int:
    with ledger.read() as connection:
        return connection.execute(sa.select(sa.func.max(trajectories.c.id))).scalar() or 0


def _all_trajectories(ledger: Ledger) -> Iterator[tuple[Any, list[str]]]:
    """Yield rows with the digests of their pictures, page by page, so that an active run is not blocked."""
    last = 0
    columns = (trajectories.c.id, trajectories.c.blob)
    while True:
        page = sa.select(*columns).where(
            trajectories.c.id > last, trajectories.c.status != Status.DAMAGED, trajectories.c.blob != ""
        )
        with ledger.read() as connection:
            rows = connection.execute(page.order_by(trajectories.c.id).limit(_PAGE_ROWS)).all()
            pictures = pictures_of(connection, (row.id for row in rows))
        if not rows:
            return
        yield from ((row, pictures[row.id]) for row in rows)
        last = rows[-1].id


def _damage(store: TrajectoryStore, trajectory_id: int, blob: str, pictures: Sequence[str]) -> list[Finding]:
    try:
        store.load(blob, pictures)
    except DamagedBlobError as error:
        what = error.what
    except OSError as error:
        what = f"blob cannot be read: {error}"
    else:
        return []
    return [Finding(kind="blob_damaged", what=f"trajectory {trajectory_id}: {what}")]


def _still_named(ledger: Ledger, trajectory_id: int, pictures: Sequence[str]) -> bool:
    """Return whether the row still refers to these pictures. The disk budget may have deleted some since the row was
    read."""
    with ledger.read() as connection:
        return set(pictures) <= set(pictures_of(connection, [trajectory_id])[trajectory_id])


def _lost_files(ledger: Ledger) -> list[Finding]:
    """Return policies and checkpoints whose folders are missing. Rows are read twice: an active run deletes folders."""
    lost, again = ([finding for one in ledger.each() for finding in _missing_folders(one)] for _ in range(2))
    return [finding for finding in again if finding in lost]


def _missing_folders(ledger: Ledger) -> list[Finding]:
    progress = checkpoint_progress(ledger)
    checkpoints, points = committed_checkpoints(ledger), recovery_points(ledger)
    published = policies_root(ledger.run_dir, ledger.policy).name
    whole = {point.train_step for point in points}
    findings = [
        Finding(kind="policy_missing", what=f"policy {policy.version}: its folder {policy.path} is missing")
        for policy in ledger.policies.loadable()
        if policy.version
        and (ledger.run_dir / policy.path).parent.name == published
        and not has_folder(ledger.run_dir, policy)
    ]
    findings += [
        Finding(
            kind="checkpoint_without_policy",
            what=f"{found.folder}: the policy of train step {found.train_step} is missing, no run can resume here",
        )
        for found in checkpoints
        if found.train_step not in whole
    ]
    newest = max((found.train_step for found in checkpoints), default=0)
    if progress and newest < progress.whole <= ledger.batches.train_step():
        back = f"--resume restarts at train step {points[0].train_step}" if points else "the run cannot be resumed"
        what = f"the checkpoint of train step {progress.whole} is missing; {back}"
        findings.append(Finding(kind="checkpoint_missing", what=what))
    return findings


def _damaged_beginnings(ledger: Ledger) -> list[Finding]:
    """Return the unfinished children whose beginning cannot be read.

    The rows are read again at the end, because children of an active run end and their beginnings are deleted.
    """
    digests = {row.beginning for row in _unfinished_children(ledger)}
    damage = {digest: _beginning_damage(ledger.store.blobs, digest) for digest in digests}
    return [
        Finding(kind="beginning_damaged", what=f"forked rollout {row.id}: {damage[row.beginning]}")
        for row in _unfinished_children(ledger)
        if damage.get(row.beginning)
    ]


def _unfinished_children(ledger: Ledger) -> Sequence[Any]:
    unfinished = (HAS_BEGINNING, rollouts.c.state != RolloutState.FINISHED)
    query = sa.select(rollouts.c.id, rollouts.c.beginning).where(*unfinished).order_by(rollouts.c.id)
    with ledger.read() as connection:
        return connection.execute(query).all()


def _beginning_damage(blobs: BlobStore, digest: str) -> str:
    try:
        read_beginning(blobs, digest)
    except DamagedBlobError as error:
        return error.what
    except OSError as error:
        return f"blob {digest} cannot be read: {error}"
    return ""


def _unknown_states(ledger: Ledger) -> list[Finding]:
    findings: list[Finding] = []
    for table, states in _STATES:
        unknown = sa.select(table.c.id, table.c.state).where(table.c.state.not_in(list(states)))
        with ledger.read() as connection:
            rows = connection.execute(unknown.limit(_PAGE_ROWS)).all()
        findings += [Finding(kind="unknown_state", what=f"{table.name} {row.id} is {row.state!r}") for row in rows]
    return findings


def _orphans(ledger: Ledger) -> list[Finding]:
    with ledger.read() as connection:
        rows = connection.execute(_ORPHANS.limit(_PAGE_ROWS)).all()
    what = "rollout {} was forked from rollout {}, which has no final record in its group"
    return [Finding(kind="child_without_parent", what=what.format(row.id, row.parent_id)) for row in rows]


def _broken_promises(ledger: Ledger) -> list[Finding]:
    totals = run_totals(ledger)
    with ledger.read() as connection:
        strangers = connection.execute(sa.select(sa.func.count()).select_from(_STRANGERS)).scalar_one()
    counts = {
        "not_joined": (strangers, "uses of role `replay` of a trajectory that joined no group of that batch"),
        "lost": (totals.lost, "rollouts or trajectories neither trained, nor dropped with a reason, nor waiting"),
        "trained_twice": (totals.trained_twice, "rollouts that two committed batches trained on"),
    }
    return [Finding(kind=kind, what=f"{count} {what}") for kind, (count, what) in counts.items() if count]
