"""The rollout state machine: queued -> leased -> finished, and leased -> queued when a lease expires or is given back.

Every write of a worker is conditional on the attempt number of its lease, which grows at every claim.
"""

import hashlib
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.data.database.prepared import Prepared, inserted
from quartet.data.ledger.part import LedgerPart
from quartet.data.rows import AppendOutcome
from quartet.data.schema import TrajectoryKind, groups, rollouts, trajectories
from quartet.data.trajectory_store import PackedTrajectory
from quartet.errors import LeaseLostError
from quartet.types import Purpose, RolloutLease, RolloutState, Status, Task, Trajectory


class Rollouts(LedgerPart):
    def claim_rollouts(self, worker: str, count: int, lease_seconds: float) -> list[RolloutLease]:
        """Lease up to `count` queued rollouts: evaluation first, then the oldest. Workers never wait for each other."""
        with self._database.write_beside() as connection:
            ids: list[int] = []
            for purpose in (Purpose.EVAL, Purpose.TRAIN):
                ids += (
                    connection.execute(_queued(purpose).limit(count - len(ids))).scalars() if len(ids) < count else []
                )
            if not ids:
                return []
            deadline = self._clock() + lease_seconds
            connection.execute(
                sa.update(rollouts)
                .where(rollouts.c.id.in_(ids))
                .values(state=RolloutState.LEASED, attempt=rollouts.c.attempt + 1, worker=worker, deadline=deadline)
            )
            seed = self._value(connection, "seed", 0)
            rows = {row.id: row for row in connection.execute(_LEASES.where(rollouts.c.id.in_(ids)))}
        return [_lease(rows[rollout_id], seed) for rollout_id in ids]

    def renew(self, lease: RolloutLease, lease_seconds: float) -> None:
        """Extend a lease, because the rollout made progress. Raises `LeaseLostError` when it is no longer held."""
        with self._database.write_beside() as connection:
            held = connection.execute(_held(lease).values(deadline=self._clock() + lease_seconds)).rowcount
        if not held:
            raise _lost(lease)

    def give_back(self, lease: RolloutLease) -> None:
        """Return an unfinished rollout to the queue; a lease that is already lost is fine."""
        with self._database.write_beside() as connection:
            connection.execute(_held(lease).values(state=RolloutState.QUEUED, worker="", deadline=None))
        self.doorbells.ring("worker")

    def append(self, lease: RolloutLease, trajectory: Trajectory, max_attempts: int) -> AppendOutcome:
        """Store a rollout's record, durably, and finish the rollout or queue its next attempt.

        Raises `LeaseLostError` when the lease was lost; the trajectory is then kept as `superseded`.
        """
        packed = self._store.pack(trajectory)
        with self._database.write_beside() as connection:
            kind = self._end(connection, lease, trajectory.status, max_attempts)
            self._store.write(connection, packed)
            _APPEND(connection, **self._row(lease, trajectory, packed, kind))
            if kind is not TrajectoryKind.FINAL or trajectory.error:
                self._event(
                    connection,
                    f"rollout_{kind}",
                    rollout_id=lease.rollout_id,
                    attempt=lease.attempt,
                    status=trajectory.status,
                    error=trajectory.error[:500],
                )
        if kind is TrajectoryKind.SUPERSEDED:
            raise _lost(lease)
        self.doorbells.ring("worker" if kind is TrajectoryKind.RETRIED else "manager")
        return _OUTCOMES[kind]

    def expire_leases(self, max_attempts: int | None = None) -> int:
        """Queue the rollouts whose lease ended; returns how many.

        One that has used up `max_attempts` is cancelled instead: it may be what kills its workers.
        """
        overdue = sa.and_(rollouts.c.state == RolloutState.LEASED, rollouts.c.deadline < self._clock())
        with self._database.read() as connection:
            if not connection.execute(sa.select(rollouts.c.id).where(overdue).limit(1)).first():
                return 0
        return self._end_leases(overdue, max_attempts)

    def end_leases(self) -> int:
        """Queue every leased rollout at once; for a resume, when no worker can be alive. Returns how many."""
        return self._end_leases(rollouts.c.state == RolloutState.LEASED, None)

    def _end_leases(self, condition: sa.ColumnElement[bool], max_attempts: int | None) -> int:
        with self._database.write() as connection:
            rows = connection.execute(sa.select(rollouts).where(condition)).all()
            for row in rows:
                spent = max_attempts is not None and row.attempt >= max_attempts
                then = (
                    {"state": RolloutState.FINISHED, "status": Status.CANCELLED, "finished_at": self._clock()}
                    if spent
                    else {"state": RolloutState.QUEUED, "worker": "", "deadline": None}
                )
                connection.execute(sa.update(rollouts).where(rollouts.c.id == row.id).values(then))
                kind = "rollout_out_of_attempts" if spent else "lease_expired"
                self._event(connection, kind, rollout_id=row.id, attempt=row.attempt, worker=row.worker)
        self.doorbells.ring("worker")
        return len(rows)

    def _end(self, connection: Connection, lease: RolloutLease, status: Status, max_attempts: int) -> TrajectoryKind:
        """Finish the rollout or queue its next attempt, if the lease still holds it; what its record is by that."""
        held = {"rollout_id": lease.rollout_id, "lease_attempt": lease.attempt}
        if status.retried and lease.attempt < max_attempts:
            if _QUEUE_AGAIN(connection, **held).rowcount:
                return TrajectoryKind.RETRIED
        elif _FINISH(connection, **held, new_status=status.value, now=self._clock()).rowcount:
            return TrajectoryKind.FINAL
        cancelled = connection.execute(_CANCELLED, held).first()
        return TrajectoryKind.LATE if cancelled else TrajectoryKind.SUPERSEDED

    def _row(
        self, lease: RolloutLease, trajectory: Trajectory, packed: PackedTrajectory, kind: TrajectoryKind
    ) -> dict[str, Any]:
        return {
            "rollout_id": lease.rollout_id,
            "group_id": lease.group_id,
            "attempt": lease.attempt,
            "kind": kind.value,
            "purpose": lease.purpose.value,
            "family": lease.task.family,
            "status": trajectory.status.value,
            "counted": kind is TrajectoryKind.FINAL and trajectory.status.countable,
            "excluded": "",
            "success": trajectory.success,
            "reward": trajectory.reward,
            "turns": len(trajectory.turns),
            "prompt_tokens": trajectory.num_prompt_tokens,
            "response_tokens": trajectory.num_response_tokens,
            "oldest_version": trajectory.oldest_version,
            "newest_version": trajectory.newest_version,
            "wall_seconds": trajectory.wall_seconds,
            "blob": packed.record.digest,
            "blob_bytes": len(packed.record.data),
            "screenshots_blob": packed.screenshots.digest if packed.screenshots else None,
            "screenshots_bytes": len(packed.screenshots.data) if packed.screenshots else 0,
            "created_at": self._clock(),
        }


_MINE = sa.and_(rollouts.c.id == sa.bindparam("rollout_id"), rollouts.c.attempt == sa.bindparam("lease_attempt"))
_HELD = sa.update(rollouts).where(_MINE, rollouts.c.state == sa.literal_column(f"'{RolloutState.LEASED}'"))
_FINISH = Prepared(
    _HELD.values(
        state=sa.literal_column(f"'{RolloutState.FINISHED}'"),
        status=sa.bindparam("new_status"),
        finished_at=sa.bindparam("now"),
        deadline=sa.null(),
    )
)
_QUEUE_AGAIN = Prepared(
    _HELD.values(
        state=sa.literal_column(f"'{RolloutState.QUEUED}'"), worker=sa.literal_column("''"), deadline=sa.null()
    )
)
_CANCELLED = sa.select(rollouts.c.id).where(_MINE, rollouts.c.status == Status.CANCELLED)
"""The rollout's group closed during this attempt."""
_APPEND = Prepared(inserted(trajectories))

_OUTCOMES = {
    TrajectoryKind.FINAL: AppendOutcome.APPENDED,
    TrajectoryKind.RETRIED: AppendOutcome.REQUEUED,
    TrajectoryKind.LATE: AppendOutcome.LATE,
}

_LEASES = sa.select(
    rollouts,
    *(groups.c[name] for name in ("env", "family", "task_seed", "params", "max_turns", "temperature")),
).join(groups, rollouts.c.group_id == groups.c.id)


def _queued(purpose: Purpose) -> sa.Select[Any]:
    waiting = (rollouts.c.state == RolloutState.QUEUED, rollouts.c.purpose == purpose)
    return sa.select(rollouts.c.id).where(*waiting).order_by(rollouts.c.id).with_for_update(skip_locked=True)


def _held(lease: RolloutLease) -> sa.Update:
    """An update that touches the rollout only while `lease` holds it."""
    return sa.update(rollouts).where(
        rollouts.c.id == lease.rollout_id,
        rollouts.c.attempt == lease.attempt,
        rollouts.c.state == RolloutState.LEASED,
    )


def _lease(row: Any, run_seed: int) -> RolloutLease:
    return RolloutLease(
        rollout_id=row.id,
        group_id=row.group_id,
        attempt=row.attempt,
        index=row.index,
        task=Task(env=row.env, family=row.family, seed=row.task_seed, params=row.params),
        max_turns=row.max_turns,
        sampling_seed=sampling_seed(run_seed, row.group_id, row.index),
        temperature=row.temperature,
        purpose=Purpose(row.purpose),
        deadline=row.deadline,
    )


def sampling_seed(run_seed: int, group_id: int, index: int) -> int:
    """63 bits, the same for every attempt of a rollout and different for every rollout."""
    digest = hashlib.blake2b(f"{run_seed}/{group_id}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _lost(lease: RolloutLease) -> LeaseLostError:
    return LeaseLostError(f"attempt {lease.attempt} of rollout {lease.rollout_id} no longer holds its lease")
