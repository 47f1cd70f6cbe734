"""Records of rollout attempts: store them durably, store the calls of recalled attempts, and read them again.

A recalled rollout is requeued with its sampled calls, and its next attempt continues from them. The partial is a
separate trajectory row that never counts, so it cannot be trained on. The rollout's row names its blob for the next
lease.
"""

import math
from collections.abc import Sequence
from itertools import takewhile

import sqlalchemy as sa
from msgspec import structs

from quartet.fault import same_error
from quartet.ledger.attempts import end_attempt, may_be_recycled, recall_attempt
from quartet.ledger.beginnings import load_shared
from quartet.ledger.blobs import DamagedBlobError
from quartet.ledger.forks import Forks
from quartet.ledger.journals import Journals
from quartet.ledger.leases import lease_lost
from quartet.ledger.rows import AppendOutcome, RepeatedError
from quartet.ledger.run_database import RunDatabase
from quartet.ledger.schema import TrajectoryKind, trajectories
from quartet.ledger.soundness import find_flaw
from quartet.ledger.trajectory_rows import (
    MOST_ERROR_CHARACTERS,
    final_record,
    insert_trajectory,
    place_of,
    trajectory_row,
)
from quartet.ledger.trajectory_store import PackedTrajectory
from quartet.ledger.values import read_value, write_value
from quartet.ledger.vocabulary import vocabulary_size
from quartet.types import Beginning, Purpose, RolloutLease, Status, Trajectory

ATTEMPTS_PER_ERROR = 10
"""`identical_errors(limit)` reads the newest `ATTEMPTS_PER_ERROR * limit` attempts, since some are ignored."""
_OF_USER_CODE = (Status.ERROR_ENV, Status.ERROR_REWARD, Status.ERROR_AGENT)
_ERRORS_FORGOTTEN = "errors_forgotten"
"""Key of the newest trajectory id at the last `forget_errors`."""
_OUTCOMES = {
    TrajectoryKind.FINAL: AppendOutcome.APPENDED,
    TrajectoryKind.RETRIED: AppendOutcome.REQUEUED,
    TrajectoryKind.LATE: AppendOutcome.LATE,
    TrajectoryKind.PARTIAL: AppendOutcome.RECYCLED,
    TrajectoryKind.EVICTED: AppendOutcome.EVICTED,
}


class Trajectories:
    """Trajectories of rollouts, by the attempt that made them."""

    def __init__(self, db: RunDatabase, forks: Forks, journals: Journals) -> None:
        self._db, self._forks, self._journals = db, forks, journals

    def append(
        self,
        lease: RolloutLease,
        trajectory: Trajectory,
        max_attempts: int,
        others: Sequence[Trajectory] = (),
        packed: Sequence[PackedTrajectory] = (),
    ) -> AppendOutcome:
        """Store a rollout's record durably, and finish the rollout or queue its next attempt.

        The next attempt begins without the forks of this one. Unsound records are stored as changed by `examined`.
        `others` are the further trajectories of a rollout with several. The first uncountable status of all of them, if
        any, is the status of the rollout. `packed` holds the results of `TrajectoryStore.pack` for all of them, in this
        order, if they were examined and packed before. Raises `LeaseLostError` if the lease was lost; the trajectories
        are then stored as `superseded`.
        """
        db = self._db
        parts = [trajectory, *others]
        if not packed:
            parts = [self.examined(part) for part in parts]
            packed = [db.store.pack(part) for part in parts]
        worst = next((part for part in parts if not part.status.countable), parts[0])
        rows = [trajectory_row(lease, *one, db.clock()) for one in zip(parts, packed, strict=True)]  # before the lock
        with db.write_beside() as connection:
            db.store.write_pictures(connection, packed)
            kind = end_attempt(db, connection, lease, worst.status, max_attempts)
            for part, row, blobs in zip(parts, rows, packed, strict=True):
                insert_trajectory(db.store, connection, row | place_of(connection, lease, part, kind), blobs)
            if kind is not TrajectoryKind.FINAL or worst.error:
                db.record(
                    connection,
                    f"rollout_{kind}",
                    rollout_id=lease.rollout_id,
                    attempt=lease.attempt,
                    status=worst.status,
                    error=worst.error[:MOST_ERROR_CHARACTERS],
                )
        if kind is TrajectoryKind.SUPERSEDED:
            raise lease_lost(lease)
        db.notifier.notify("worker" if kind is TrajectoryKind.RETRIED else "manager")
        return _OUTCOMES[kind]

    def examined(self, trajectory: Trajectory) -> Trajectory:
        """Return the trajectory unchanged or, if it is invalid, with the status of its flaw and without rewards."""
        flaw = find_flaw(trajectory, vocabulary_size(self._db, trajectory.policy) or math.inf)
        if flaw is None:
            return trajectory
        error = f"{flaw} (task {trajectory.task.key})"
        turns = [structs.replace(turn, rewards={}) for turn in trajectory.turns]
        return structs.replace(trajectory, status=flaw.status, error=error, rewards={}, turns=turns, success=False)

    def recycle(self, lease: RolloutLease, partial: Trajectory, max_recycles: int) -> AppendOutcome:
        """Store the calls of a recalled rollout and requeue it; after `max_recycles` times cancel it instead.

        `max_recycles` counts only the recalls of a rollout that has sampled a token, because it bounds the lag of
        tokens. Any other rollout is cancelled after `MAX_EMPTY_RECYCLES` recalls.

        `partial` has status `cancelled` and all calls so far; the last one may be cut off. If the group has closed by
        now, `partial` is stored as `late`. Raises `LeaseLostError` if the lease was lost; `partial` is then stored as
        `superseded`.
        """
        db = self._db
        packed = db.store.pack(partial)
        row = trajectory_row(lease, partial, packed, db.clock())
        row |= {"turns": len(partial.calls), "valid_actions": None}  # a partial has no turns: its calls count as such
        with db.write_beside() as connection:
            db.store.write_pictures(connection, [packed])
            again = may_be_recycled(connection, lease, partial, max_recycles)
            kind = recall_attempt(db, connection, lease, packed.record.digest, again=again)
            own = {"kind": kind.value, "group_id": lease.group_id, "counted": False}
            insert_trajectory(db.store, connection, row | own, packed)
            if kind is TrajectoryKind.EVICTED:
                db.record(connection, "rollout_evicted", rollout_id=lease.rollout_id, recycled=lease.recycled)
        if kind is TrajectoryKind.SUPERSEDED:
            raise lease_lost(lease)
        db.notifier.notify("worker", "manager", "engine")
        return _OUTCOMES[kind]

    def load_beginning(self, lease: RolloutLease) -> Beginning:
        """Return the calls and the state with which an attempt begins. These are the calls of the last recalled
        attempt, and those in the journals of later attempts, which left no trajectory. A child begins with the calls
        that it shares with its parent and, if it was stored, with the state of the parent's environment.

        If the record of the recalled attempt is damaged, an event is recorded, and its forks are cancelled because this
        attempt samples other calls. Raises `DamagedBlobError` if what a child shares is lost.
        """
        beginning, recalled = self._recalled(lease, load_shared(self._db.store.blobs, lease))
        journaled = self._journals.calls(lease.rollout_id, lease.attempt, after=recalled)
        return structs.replace(beginning, calls=[*beginning.calls, *journaled])

    def _recalled(self, lease: RolloutLease, shared: Beginning) -> tuple[Beginning, int]:
        """Return the beginning with the calls of the last recalled attempt, and the number of that attempt; `shared`
        and 0 if there is none or its record is damaged."""
        if not lease.partial:
            return shared, 0
        try:
            calls = self._db.store.load(lease.partial).calls
        except DamagedBlobError as error:
            self._db.event("partial_damaged", rollout_id=lease.rollout_id, error=error.what)
            self._forks.cancel(lease)
            return shared, 0
        of_rollout = (trajectories.c.group_id == lease.group_id, trajectories.c.rollout_id == lease.rollout_id)
        recalled = (*of_rollout, trajectories.c.kind == TrajectoryKind.PARTIAL)
        newest = sa.select(sa.func.max(trajectories.c.attempt)).where(*recalled)
        with self._db.read() as connection:
            return structs.replace(shared, calls=calls), connection.execute(newest).scalar_one()

    def load_final(self, rollout_id: int, part: str | None = None) -> Trajectory | None:
        """Return the policy's final trajectory of a rollout, without pictures; None if there is none.

        `part` is needed if the rollout has several of the policy. Raises `DamagedBlobError`.
        """
        return final_record(self._db, rollout_id, part)

    def identical_errors(self, limit: int) -> RepeatedError | None:
        """Return the error with which the newest rollouts failed, one after another; None if the newest rollout did not
        fail.

        At most `limit` rollouts are counted. Only a countable rollout or another error ends the sequence. Failures of
        engines are ignored, and so are rollouts before the last `forget_errors`.
        """
        columns = [trajectories.c[name] for name in ("id", "rollout_id", "purpose", "status", "error", "blob")]
        newest = sa.select(*columns).order_by(trajectories.c.id.desc()).limit(ATTEMPTS_PER_ERROR * limit).subquery()
        with self._db.read() as connection:
            forgotten = read_value(connection, _ERRORS_FORGOTTEN, 0)
            judged = sa.select(newest).where(
                newest.c.id > forgotten,
                newest.c.purpose != Purpose.DEMONSTRATION,
                newest.c.status.in_([status for status in Status if status.countable or status in _OF_USER_CODE]),
            )
            rows = connection.execute(judged.order_by(newest.c.id.desc()).limit(limit)).all()
        same = list(takewhile(lambda row: row.error and same_error(row.error, rows[0].error), rows))
        if not same:
            return None
        last = same[0]
        return RepeatedError(
            count=len(same), error=last.error, status=last.status, rollout_id=last.rollout_id, blob=last.blob
        )

    def forget_errors(self) -> None:
        """Restart the count of identical errors, for a resume, possibly with fixed code."""
        with self._db.write() as connection:
            newest = connection.execute(sa.select(sa.func.max(trajectories.c.id))).scalar() or 0
            write_value(connection, _ERRORS_FORGOTTEN, newest)
