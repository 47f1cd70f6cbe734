"""Ends of rollout attempts: finished, requeued, late, or superseded. Attempts begin in `leases.py`.

The rollout state machine is queued -> leased -> finished, and leased -> queued for another attempt.
"""

import math
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from msgspec import structs
from sqlalchemy import Connection

from quartet.ledger.database.prepared import Prepared, inserted
from quartet.ledger.leases import HELD, MINE, TRY_AGAIN, Leases, attempt_of, lease_lost
from quartet.ledger.rows import AppendOutcome
from quartet.ledger.schema import TrajectoryKind, groups, rollouts, trajectories
from quartet.ledger.soundness import find_flaw
from quartet.ledger.trajectory_store import PackedTrajectory
from quartet.ledger.version_list import version_list
from quartet.types import RolloutLease, RolloutState, Status, Trajectory

MOST_ERROR_CHARACTERS = 500
"""Maximum length of a trajectory's error in its row; the record has the full text."""
_VOCABULARY = "vocabulary_size"
"""Key of the vocabulary size among the run's values."""


class Rollouts(Leases):
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
        order, if they are packed already. Raises `LeaseLostError` if the lease was lost; the trajectories are then
        stored as `superseded`.
        """
        parts = [self.examined(part) for part in (trajectory, *others)]
        packed = packed or [self._store.pack(part) for part in parts]
        worst = next((part for part in parts if not part.status.countable), parts[0])
        rows = [self._row(lease, part, blobs) for part, blobs in zip(parts, packed, strict=True)]  # before the lock
        with self._database.write_beside() as connection:
            kind = self._end(connection, lease, worst.status, max_attempts)
            for part, row, blobs in zip(parts, rows, packed, strict=True):
                place = self._place(connection, lease, part, kind)
                self._insert(connection, row | place | {"kind": kind.value}, blobs)
            if kind is not TrajectoryKind.FINAL or worst.error:
                self._event(
                    connection,
                    f"rollout_{kind}",
                    rollout_id=lease.rollout_id,
                    attempt=lease.attempt,
                    status=worst.status,
                    error=worst.error[:MOST_ERROR_CHARACTERS],
                )
        if kind is TrajectoryKind.SUPERSEDED:
            raise lease_lost(lease)
        self.doorbells.ring("worker" if kind is TrajectoryKind.RETRIED else "manager")
        return _OUTCOMES[kind]

    def examined(self, trajectory: Trajectory) -> Trajectory:
        """Return the trajectory unchanged or, if it cannot be trained on, with its flaw's status and no rewards."""
        flaw = find_flaw(trajectory, self._vocabulary_size(trajectory.policy) or math.inf)
        if flaw is None:
            return trajectory
        error = f"{flaw} (task {trajectory.task.key})"
        turns = [structs.replace(turn, rewards={}) for turn in trajectory.turns]
        return structs.replace(trajectory, status=flaw.status, error=error, rewards={}, turns=turns, success=False)

    def settle_vocabulary(self, size: int) -> None:
        """Record the policy's vocabulary size, which is the same for all its versions."""
        self.set_value(self._key(_VOCABULARY), size)
        self._settled.pop((_VOCABULARY, self.policy), None)

    @property
    def vocabulary_size(self) -> int | None:
        """Vocabulary size of the policy, recorded at the start of the run; None if none was recorded."""
        return self._vocabulary_size(self.policy)

    def _vocabulary_size(self, policy: str) -> int | None:
        if (_VOCABULARY, policy) not in self._settled:
            self._settled[_VOCABULARY, policy] = self.value(self.of(policy)._key(_VOCABULARY))
        return self._settled[_VOCABULARY, policy]

    def _end(self, connection: Connection, lease: RolloutLease, status: Status, max_attempts: int) -> TrajectoryKind:
        """Finish or requeue the rollout if the lease is still held. Return the kind of trajectory to store."""
        held = attempt_of(lease)
        if status.retried and lease.failures + 1 < max_attempts:
            if TRY_AGAIN(connection, **held).rowcount:
                self._cancel_forks(connection, [lease.rollout_id])
                return TrajectoryKind.RETRIED
        elif _FINISH(connection, **held, new_status=status.value, now=self._clock()).rowcount:
            return TrajectoryKind.FINAL
        return self._too_late(connection, lease)

    def _too_late(self, connection: Connection, lease: RolloutLease) -> TrajectoryKind:
        """Return the kind of a trajectory whose lease is no longer held."""
        held = attempt_of(lease)
        cancelled = connection.execute(_CANCELLED, held).first()
        return TrajectoryKind.LATE if cancelled else TrajectoryKind.SUPERSEDED

    def _place(
        self, connection: Connection, lease: RolloutLease, trajectory: Trajectory, kind: TrajectoryKind
    ) -> dict[str, Any]:
        """Return the group of a trajectory and whether it counts there, as columns of its row.

        Frozen policies, and all but the first in an evaluation, have no group for the rollout. Their trajectories are
        stored in the rollout's group and do not count.
        """
        countable = kind is TrajectoryKind.FINAL and trajectory.status.countable
        if trajectory.policy == lease.policy:
            return {"group_id": lease.group_id, "counted": countable}
        own = connection.execute(_BESIDE, {"lead": lease.group_id, "policy": trajectory.policy}).scalar()
        return {"group_id": own or lease.group_id, "counted": countable and own is not None}

    def _insert(self, connection: Connection, row: dict[str, Any], packed: PackedTrajectory) -> None:
        """Add a row of `trajectories` with its blobs."""
        self._store.write(connection, packed)
        if not packed.pictures:
            _APPEND(connection, **row)
            return
        with_id = sa.insert(trajectories).values(row).returning(trajectories.c.id)
        self._store.write_pictures(connection, connection.execute(with_id).scalar_one(), packed)

    def _row(self, lease: RolloutLease, trajectory: Trajectory, packed: PackedTrajectory) -> dict[str, Any]:
        """Return the columns of a trajectory's row that do not depend on its rollout's end."""
        versions = trajectory.versions
        return {
            "rollout_id": lease.rollout_id,
            "policy": trajectory.policy,
            "role": trajectory.role,
            "part": trajectory.part,
            "attempt": lease.attempt,
            "purpose": lease.purpose.value,
            "family": lease.task.family,
            "status": trajectory.status.value,
            "excluded": "",
            "success": trajectory.success,
            "reward": trajectory.reward,
            "turns": len(trajectory.turns),
            "valid_actions": trajectory.num_valid_actions,
            "error": trajectory.error[:MOST_ERROR_CHARACTERS],
            "prompt_tokens": trajectory.num_prompt_tokens,
            "response_tokens": trajectory.num_response_tokens,
            "oldest_version": min(versions, default=None),
            "newest_version": max(versions, default=None),
            "versions": version_list(versions),
            "wall_seconds": trajectory.wall_seconds,
            "blob": packed.record.digest,
            "blob_bytes": len(packed.record.data),
            "created_at": self._clock(),
        }


_FINISH = Prepared(
    HELD.values(
        state=sa.literal_column(f"'{RolloutState.FINISHED}'"),
        status=sa.bindparam("new_status"),
        finished_at=sa.bindparam("now"),
        deadline=sa.null(),
    )
)
_CANCELLED = sa.select(rollouts.c.id).where(MINE, rollouts.c.status == Status.CANCELLED)
"""The rollout's group closed during this attempt."""
_BESIDE = sa.select(groups.c.id).where(
    groups.c.rollouts_of == sa.bindparam("lead"), groups.c.policy == sa.bindparam("policy")
)
"""The group of another policy for the rollouts of the group `lead`."""
_APPEND = Prepared(inserted(trajectories))

_OUTCOMES = {
    TrajectoryKind.FINAL: AppendOutcome.APPENDED,
    TrajectoryKind.RETRIED: AppendOutcome.REQUEUED,
    TrajectoryKind.LATE: AppendOutcome.LATE,
}
