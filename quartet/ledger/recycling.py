"""Recycling: an unfinished rollout is requeued with its sampled calls, and its next attempt continues from them.

The partial is a separate trajectory row that never counts, so it cannot be trained on. The rollout's row names its blob
for the next lease.
"""

from collections.abc import Iterable

import sqlalchemy as sa
from msgspec.structs import replace
from sqlalchemy import Connection

from quartet.ledger.beginnings import Beginnings
from quartet.ledger.blobs import DamagedBlobError
from quartet.ledger.database.prepared import Prepared
from quartet.ledger.leases import HELD, IS_HELD, attempt_of, lease_lost
from quartet.ledger.rollouts import Rollouts
from quartet.ledger.rows import AppendOutcome
from quartet.ledger.schema import TrajectoryKind, rollouts, trajectories
from quartet.types import Beginning, RolloutLease, RolloutState, Status, Trajectory

MAX_EMPTY_RECYCLES = 32
"""Maximum number of recalls of a rollout that never sampled a token; then it is evicted."""
_RECYCLE = Prepared(
    HELD.values(
        state=sa.literal_column(f"'{RolloutState.QUEUED}'"),
        worker=sa.literal_column("''"),
        deadline=sa.null(),
        recycled=rollouts.c.recycled + sa.literal_column("1"),
        partial=sa.bindparam("new_partial"),
    )
)
_EVICT = Prepared(
    HELD.values(
        state=sa.literal_column(f"'{RolloutState.FINISHED}'"),
        status=sa.literal_column(f"'{Status.CANCELLED}'"),
        finished_at=sa.bindparam("now"),
        deadline=sa.null(),
    )
)
_OUTCOMES = {
    TrajectoryKind.PARTIAL: AppendOutcome.RECYCLED,
    TrajectoryKind.EVICTED: AppendOutcome.EVICTED,
    TrajectoryKind.LATE: AppendOutcome.LATE,
}


class Recycling(Rollouts, Beginnings):
    def held(self, leases: Iterable[RolloutLease]) -> set[tuple[int, int]]:
        """Return (rollout id, attempt) of the leases that are still held. Work on the others can stop."""
        asked = {(lease.rollout_id, lease.attempt) for lease in leases}
        leased = (rollouts.c.id.in_([rollout_id for rollout_id, _ in asked]), rollouts.c.state == RolloutState.LEASED)
        with self._database.read() as connection:
            rows = connection.execute(sa.select(rollouts.c.id, rollouts.c.attempt).where(*leased))
            return asked & {(row.id, row.attempt) for row in rows}

    def recycle(self, lease: RolloutLease, partial: Trajectory, max_recycles: int) -> AppendOutcome:
        """Store the calls of a recalled rollout and requeue it; after `max_recycles` times cancel it instead.

        Only recalls with a sampled token count, because the bound limits the lag of tokens. A rollout without any is
        cancelled after `MAX_EMPTY_RECYCLES` times.

        `partial` has status `cancelled` and all calls so far; the last one may be cut off. If the group has closed
        meanwhile it is stored as `late`. Raises `LeaseLostError` if the lease was lost; it is then stored as
        `superseded`.
        """
        packed = self._store.pack(partial)
        with self._database.write_beside() as connection:
            again = self._may_go_on(connection, lease, partial, max_recycles)
            kind = self._recycle(connection, lease, packed.record.digest, again=again)
            row = self._row(lease, partial, packed) | {"kind": kind.value, "group_id": lease.group_id, "counted": False}
            # A partial has no turns, so its calls are counted as turns.
            self._insert(connection, row | {"turns": len(partial.calls), "valid_actions": None}, packed)
            if kind is TrajectoryKind.EVICTED:
                self._event(connection, "rollout_evicted", rollout_id=lease.rollout_id, recycled=lease.recycled)
        if kind is TrajectoryKind.SUPERSEDED:
            raise lease_lost(lease)
        self.doorbells.ring("worker", "manager", "engine")
        return _OUTCOMES[kind]

    def load_beginning(self, lease: RolloutLease) -> Beginning:
        """Return what the attempt begins from: the calls of a recalled attempt, else those that a child shares with its
        parent, and the state of the parent's environment if it was stored.

        If the record of the recalled attempt is damaged, an event is recorded, and its forks are cancelled because this
        attempt samples other calls. Raises `DamagedBlobError` if what a child shares is lost.
        """
        shared = self._load_shared(lease)
        try:
            return replace(shared, calls=self._store.load(lease.partial).calls) if lease.partial else shared
        except DamagedBlobError as error:
            self.event("partial_damaged", rollout_id=lease.rollout_id, error=error.what)
            self.drop_forks(lease)
            return shared

    def drop_forks(self, lease: RolloutLease) -> None:
        """Cancel what was forked from a running rollout, because its attempt took another way than those before it.

        A lease that is already lost is fine: its forks went with it.
        """
        with self._database.write() as connection:
            if connection.execute(IS_HELD, attempt_of(lease)).first():
                self._cancel_forks(connection, [lease.rollout_id])
        self.doorbells.ring("worker", "manager")

    def _may_go_on(self, connection: Connection, lease: RolloutLease, partial: Trajectory, max_recycles: int) -> bool:
        if not partial.num_response_tokens:
            return lease.recycled < MAX_EMPTY_RECYCLES
        earlier = (trajectories.c.group_id == lease.group_id, trajectories.c.rollout_id == lease.rollout_id)
        with_tokens = (trajectories.c.kind == TrajectoryKind.PARTIAL, trajectories.c.response_tokens > 0)
        query = sa.select(sa.func.count()).select_from(trajectories).where(*earlier, *with_tokens)
        return connection.execute(query).scalar_one() < max_recycles

    def _recycle(self, connection: Connection, lease: RolloutLease, blob: str, *, again: bool) -> TrajectoryKind:
        held = attempt_of(lease)
        if again:
            if _RECYCLE(connection, **held, new_partial=blob).rowcount:
                return TrajectoryKind.PARTIAL
        elif _EVICT(connection, **held, now=self._clock()).rowcount:
            self._cancel_forks(connection, [lease.rollout_id])
            return TrajectoryKind.EVICTED
        return self._too_late(connection, lease)
