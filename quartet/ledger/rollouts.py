"""How an attempt at a rollout ends: finished, queued again, late, or superseded. How it begins: `leases.py`.

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
"""Of a trajectory's error in its row; the record has the whole."""
_VOCABULARY = "vocabulary_size"
"""Its name in the ledger."""


class Rollouts(Leases):
    def append(
        self,
        lease: RolloutLease,
        trajectory: Trajectory,
        max_attempts: int,
        others: Sequence[Trajectory] = (),
        packed: Sequence[PackedTrajectory] = (),
    ) -> AppendOutcome:
        """Store a rollout's record, durably, and finish the rollout or queue its next attempt, which begins without the
        forks of this one. A record that could not be trained on is stored as `examined` makes it.

        `others` are the further parts of a rollout with several. It ends as the first of all that does not count ended,
        if any. `packed` is what `TrajectoryStore.pack` made of all parts, in this order, where that was done before.
        Raises `LeaseLostError` when the lease was lost; the trajectories are then kept as `superseded`.
        """
        parts = [self.examined(part) for part in (trajectory, *others)]
        packed = packed or [self._store.pack(part) for part in parts]
        worst = next((part for part in parts if not part.status.countable), parts[0])
        with self._database.write_beside() as connection:
            kind = self._end(connection, lease, worst.status, max_attempts)
            for part, blobs in zip(parts, packed, strict=True):
                place = self._place(connection, lease, part, kind)
                self._insert(connection, self._row(lease, part, blobs, kind) | place, blobs)
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
        """Return the trajectory as it is, or, when it could not be trained on, with the status of its flaw and without
        a reward."""
        flaw = find_flaw(trajectory, self.of(trajectory.policy).vocabulary_size or math.inf)
        if flaw is None:
            return trajectory
        error = f"{flaw} (task {trajectory.task.key})"
        turns = [structs.replace(turn, rewards={}) for turn in trajectory.turns]
        return structs.replace(trajectory, status=flaw.status, error=error, rewards={}, turns=turns, success=False)

    def settle_vocabulary(self, size: int) -> None:
        """Record how many tokens the policy knows; all its versions have the same vocabulary."""
        self.set_value(self._key(_VOCABULARY), size)
        self._settled.pop(self._key(_VOCABULARY), None)

    @property
    def vocabulary_size(self) -> int | None:
        """Of the policy, as recorded when the run began; None for a run that recorded none."""
        key = self._key(_VOCABULARY)
        if key not in self._settled:
            self._settled[key] = self.value(key)
        return self._settled[key]

    def _end(self, connection: Connection, lease: RolloutLease, status: Status, max_attempts: int) -> TrajectoryKind:
        """Finish the rollout or queue its next attempt, if the lease still holds it; what its record is by that."""
        held = attempt_of(lease)
        if status.retried and lease.failures + 1 < max_attempts:
            if TRY_AGAIN(connection, **held).rowcount:
                self._cancel_forks(connection, [lease.rollout_id])
                return TrajectoryKind.RETRIED
        elif _FINISH(connection, **held, new_status=status.value, now=self._clock()).rowcount:
            return TrajectoryKind.FINAL
        return self._too_late(connection, lease)

    def _too_late(self, connection: Connection, lease: RolloutLease) -> TrajectoryKind:
        """What the record of a lease is that is no longer held."""
        held = attempt_of(lease)
        cancelled = connection.execute(_CANCELLED, held).first()
        return TrajectoryKind.LATE if cancelled else TrajectoryKind.SUPERSEDED

    def _place(
        self, connection: Connection, lease: RolloutLease, trajectory: Trajectory, kind: TrajectoryKind
    ) -> dict[str, Any]:
        """Return the group of a trajectory and whether it counts there.

        That of a policy without a group for this rollout (a frozen one, or any but the first in an evaluation) stands
        in the group of the rollout and counts nowhere.
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

    def _row(
        self, lease: RolloutLease, trajectory: Trajectory, packed: PackedTrajectory, kind: TrajectoryKind
    ) -> dict[str, Any]:
        versions = trajectory.versions
        return {
            "rollout_id": lease.rollout_id,
            "policy": trajectory.policy,
            "role": trajectory.role,
            "part": trajectory.part,
            "attempt": lease.attempt,
            "kind": kind.value,
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
