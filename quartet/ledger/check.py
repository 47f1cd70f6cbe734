"""Verification of the ledger's invariants and of every blob's checksum."""

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from msgspec import Struct, to_builtins

from quartet.ledger.batches import REPLAY
from quartet.ledger.beginnings import Beginnings
from quartet.ledger.blobs import DamagedBlobError
from quartet.ledger.pictures import pictures_of
from quartet.ledger.policy_folders import policies_root
from quartet.ledger.recovery import Recovery
from quartet.ledger.schema import TrajectoryKind, batches, groups, replays, rollouts, trajectories, uses
from quartet.ledger.staleness import Staleness
from quartet.ledger.totals import RunTotals
from quartet.on_progress import OnProgress, nobody_watches
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
"""Counted children whose parent left no final record in their group; while a group is open, parents may be running."""


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


class Check(Beginnings, RunTotals, Staleness, Recovery):
    def check(
        self,
        max_lag: int | None = None,
        train_steps_per_checkpoint: int | None = None,
        on_progress: OnProgress = nobody_watches,
    ) -> CheckReport:
        """Read the whole ledger and every blob it refers to, once.

        `max_lag` is the run's lag bound; without it the lag of trained tokens is not checked. Without
        `train_steps_per_checkpoint` a missing checkpoint is not detected. A blob whose trajectory is already marked
        damaged is not a finding.
        """
        findings = [*self._unknown_states(), *self._broken_promises(), *self._orphans()]
        findings += self._lost_files(train_steps_per_checkpoint)
        findings += [
            Finding(kind="beginning_damaged", what=f"forked rollout {rollout_id}: {damage}")
            for rollout_id, damage in self.damaged_beginnings()
        ]
        if max_lag is not None:
            findings += [Finding(kind="over_lag", what=what) for one in self.each() for what in one.over_lag(max_lag)]
        read: set[str] = set()
        sound: set[str] = set()
        count, total = 0, self._newest_trajectory()
        for row, pictures in self._all_trajectories():
            count += 1
            on_progress(row.id, total)
            new = [digest for digest in pictures if digest not in sound]
            damage = [] if row.blob in sound and not new else self._damage(row.id, row.blob, new)
            findings += damage if damage and self._still_named(row.id, new) else []
            read.update((row.blob, *pictures))
            sound.update(() if damage else (row.blob, *new))
        return CheckReport(trajectories=count, blobs=len(read), findings=findings)

    def _newest_trajectory(self) -> int:
        with self._database.read() as connection:
            return connection.execute(sa.select(sa.func.max(trajectories.c.id))).scalar() or 0

    def _all_trajectories(self) -> Iterator[tuple[Any, list[str]]]:
        """Yield rows with the digests of their pictures, page by page, so that an active run is not blocked."""
        last = 0
        columns = (trajectories.c.id, trajectories.c.blob)
        while True:
            page = sa.select(*columns).where(
                trajectories.c.id > last, trajectories.c.status != Status.DAMAGED, trajectories.c.blob != ""
            )
            with self._database.read() as connection:
                rows = connection.execute(page.order_by(trajectories.c.id).limit(_PAGE_ROWS)).all()
                pictures = pictures_of(connection, (row.id for row in rows))
            if not rows:
                return
            yield from ((row, pictures[row.id]) for row in rows)
            last = rows[-1].id

    def _damage(self, trajectory_id: int, blob: str, pictures: Sequence[str]) -> list[Finding]:
        try:
            self._store.load(blob, pictures)
        except DamagedBlobError as error:
            what = error.what
        except OSError as error:
            what = f"blob cannot be read: {error}"
        else:
            return []
        return [Finding(kind="blob_damaged", what=f"trajectory {trajectory_id}: {what}")]

    def _still_named(self, trajectory_id: int, pictures: Sequence[str]) -> bool:
        """Return whether the row still refers to these pictures: the disk budget may have deleted some meanwhile."""
        with self._database.read() as connection:
            return set(pictures) <= set(pictures_of(connection, [trajectory_id])[trajectory_id])

    def _lost_files(self, train_steps_per_checkpoint: int | None) -> list[Finding]:
        """Return policies and checkpoints without their folders. Reads twice, because an active run deletes folders."""
        lost, again = (
            [finding for ledger in self.each() for finding in ledger._missing_folders(train_steps_per_checkpoint)]
            for _ in range(2)
        )
        return [finding for finding in again if finding in lost]

    def _missing_folders(self, every: int | None) -> list[Finding]:
        checkpoints, points = self.committed_checkpoints(), self.recovery_points()
        published = policies_root(self.run_dir, self.policy).name
        whole = {point.train_step for point in points}
        findings = [
            Finding(kind="policy_missing", what=f"policy {policy.version}: its folder {policy.path} is missing")
            for policy in self.loadable_policies()
            if policy.version and (self.run_dir / policy.path).parent.name == published and not self.has_folder(policy)
        ]
        findings += [
            Finding(
                kind="checkpoint_without_policy",
                what=f"{found.folder}: the policy of train step {found.train_step} is missing, no run can resume here",
            )
            for found in checkpoints
            if found.train_step not in whole
        ]
        due = self.train_step() // every * every if every else 0
        if due and due not in {found.train_step for found in checkpoints}:
            back = f"--resume restarts at train step {points[0].train_step}" if points else "the run cannot be resumed"
            what = f"the checkpoint of train step {due} is missing; {back}"
            findings.append(Finding(kind="checkpoint_missing", what=what))
        return findings

    def _unknown_states(self) -> list[Finding]:
        findings: list[Finding] = []
        for table, states in _STATES:
            unknown = sa.select(table.c.id, table.c.state).where(table.c.state.not_in(list(states)))
            with self._database.read() as connection:
                rows = connection.execute(unknown.limit(_PAGE_ROWS)).all()
            findings += [Finding(kind="unknown_state", what=f"{table.name} {row.id} is {row.state!r}") for row in rows]
        return findings

    def _orphans(self) -> list[Finding]:
        with self._database.read() as connection:
            rows = connection.execute(_ORPHANS.limit(_PAGE_ROWS)).all()
        what = "rollout {} was forked from rollout {}, which has no final record in its group"
        return [Finding(kind="child_without_parent", what=what.format(row.id, row.parent_id)) for row in rows]

    def _broken_promises(self) -> list[Finding]:
        totals = self.totals()
        with self._database.read() as connection:
            strangers = connection.execute(sa.select(sa.func.count()).select_from(_STRANGERS)).scalar_one()
        counts = {
            "not_joined": (strangers, "uses of role `replay` of a trajectory that joined no group of that batch"),
            "lost": (totals.lost, "rollouts or trajectories neither trained, nor dropped with a reason, nor waiting"),
            "trained_twice": (totals.trained_twice, "rollouts that two committed batches trained on"),
        }
        return [Finding(kind=kind, what=f"{count} {what}") for kind, (count, what) in counts.items() if count]
