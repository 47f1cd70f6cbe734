"""Leases on rollouts: claimed, renewed on progress, released, or expired.

Every write of a worker is conditional on the attempt number of its lease, which increases with every claim.
"""

import hashlib
from typing import Any

import sqlalchemy as sa

from quartet.errors import LeaseLostError
from quartet.ledger.cancelling import Cancelling
from quartet.ledger.database.prepared import Prepared
from quartet.ledger.schema import groups, rollouts
from quartet.types import Fork, GroupState, Purpose, RolloutLease, RolloutState, Status, Task


class Leases(Cancelling):
    def claim_rollouts(
        self, worker: str, count: int, lease_seconds: float, *, training: bool = True
    ) -> list[RolloutLease]:
        """Lease up to `count` queued rollouts: evaluation first, then the oldest. Workers do not block each other.

        Without `training` only evaluation rollouts are leased.
        """
        with self._database.write_beside() as connection:
            ids: list[int] = []
            for purpose in (Purpose.EVAL, Purpose.TRAIN) if training else (Purpose.EVAL,):
                ids += (
                    connection.execute(_queued(purpose).limit(count - len(ids))).scalars() if len(ids) < count else []
                )
            if not ids:
                return []
            now = self._now(connection)
            leased = {"state": RolloutState.LEASED, "worker": worker, "deadline": now + lease_seconds}
            claimed = sa.update(rollouts).where(rollouts.c.id.in_(ids))
            connection.execute(claimed.values(attempt=rollouts.c.attempt + 1, **leased))
            seed = self._value(connection, "seed", 0)
            rows = {row.id: row for row in connection.execute(_LEASES.where(rollouts.c.id.in_(ids)))}
            self._begin_groups(connection, {row.group_id for row in rows.values() if row.leased_at is None}, now)
        return [_lease(rows[rollout_id], seed) for rollout_id in ids]

    def renew(self, lease: RolloutLease, lease_seconds: float) -> None:
        """Extend a lease after progress of the rollout. Raises `LeaseLostError` if it is no longer held."""
        with self._database.write_beside() as connection:
            held = _RENEW(connection, **attempt_of(lease), until=self._now(connection) + lease_seconds).rowcount
        if not held:
            raise lease_lost(lease)

    def give_back(self, lease: RolloutLease) -> None:
        """Release a lease and requeue its unfinished rollout; a lease that is already lost is ignored.

        The attempt does not count towards `max_attempts`. Forks of the rollout are cancelled.
        """
        with self._database.write_beside() as connection:
            if _GIVE_BACK(connection, **attempt_of(lease)).rowcount:
                self._cancel_forks(connection, [lease.rollout_id])
        self.doorbells.ring("worker")

    def expire_leases(self, max_attempts: int | None = None) -> int:
        """Requeue the rollouts whose lease expired; return their number.

        A rollout that has used up `max_attempts` is cancelled instead: it may be crashing its workers. Forks are also
        cancelled, since the next attempt makes its own.
        """
        with self._database.read() as connection:
            overdue = sa.and_(rollouts.c.state == RolloutState.LEASED, rollouts.c.deadline < self._now(connection))
            if not connection.execute(sa.select(rollouts.c.id).where(overdue).limit(1)).first():
                return 0
        return self._end_leases(overdue, max_attempts)

    def end_leases(self) -> int:
        """Requeue every leased rollout, for a resume, when no worker can be alive; return their number.

        The deadlines of open groups restart at their next lease, so that the pause of the run does not count.
        """
        ended = self._end_leases(rollouts.c.state == RolloutState.LEASED, None)
        with self._database.write() as connection:
            unfinished = sa.update(groups).where(groups.c.state == GroupState.OPEN)
            connection.execute(unfinished.values(leased_at=None))
        return ended

    def _begin_groups(self, connection: sa.Connection, group_ids: set[int], now: float) -> None:
        """Record the first lease of these groups, except of groups that another worker is recording now."""
        if group_ids:
            new = sa.select(groups.c.id).where(groups.c.id.in_(group_ids), groups.c.leased_at.is_(None))
            mine = connection.execute(new.with_for_update(skip_locked=True)).scalars().all()
            connection.execute(sa.update(groups).where(groups.c.id.in_(mine)).values(leased_at=now))

    def _end_leases(self, condition: sa.ColumnElement[bool], max_attempts: int | None) -> int:
        with self._database.write() as connection:
            rows = connection.execute(sa.select(rollouts).where(condition)).all()
            for row in rows:
                failures = row.failures + (max_attempts is not None)
                spent = max_attempts is not None and failures >= max_attempts
                then = (
                    {"state": RolloutState.FINISHED, "status": Status.CANCELLED, "finished_at": self._clock()}
                    if spent
                    else {"state": RolloutState.QUEUED, "worker": "", "deadline": None, "failures": failures}
                )
                connection.execute(sa.update(rollouts).where(rollouts.c.id == row.id).values(then))
                kind = "rollout_out_of_attempts" if spent else "lease_expired"
                self._event(connection, kind, rollout_id=row.id, attempt=row.attempt, worker=row.worker)
            self._cancel_forks(connection, [row.id for row in rows])
        self.doorbells.ring("worker")
        return len(rows)


MINE = sa.and_(rollouts.c.id == sa.bindparam("rollout_id"), rollouts.c.attempt == sa.bindparam("lease_attempt"))
HELD = sa.update(rollouts).where(MINE, rollouts.c.state == sa.literal_column(f"'{RolloutState.LEASED}'"))
"""Update that only matches while attempt `lease_attempt` of `rollout_id` holds the lease."""
IS_HELD = sa.select(rollouts.c.id).where(MINE, rollouts.c.state == RolloutState.LEASED)
_RENEW = Prepared(HELD.values(deadline=sa.bindparam("until")))
_QUEUED = HELD.values(
    state=sa.literal_column(f"'{RolloutState.QUEUED}'"), worker=sa.literal_column("''"), deadline=sa.null()
)
_GIVE_BACK = Prepared(_QUEUED)
TRY_AGAIN = Prepared(_QUEUED.values(failures=rollouts.c.failures + sa.literal_column("1")))

_LEASES = sa.select(
    rollouts,
    *(
        groups.c[name]
        for name in ("env", "family", "task_seed", "params", "max_turns", "temperature", "policy", "leased_at")
    ),
).join(groups, rollouts.c.group_id == groups.c.id)


def _queued(purpose: Purpose) -> sa.Select[Any]:
    waiting = (rollouts.c.state == RolloutState.QUEUED, rollouts.c.purpose == purpose)
    return sa.select(rollouts.c.id).where(*waiting).order_by(rollouts.c.id).with_for_update(skip_locked=True)


def attempt_of(lease: RolloutLease) -> dict[str, int]:
    """Return the parameters of `HELD` and similar statements."""
    return {"rollout_id": lease.rollout_id, "lease_attempt": lease.attempt}


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
        policy=row.policy,
        deadline=row.deadline,
        recycled=row.recycled,
        failures=row.failures,
        partial=row.partial,
        beginning=row.beginning,
        parent=None if row.parent_id is None else Fork(rollout_id=row.parent_id, call_index=row.parent_call),
    )


def sampling_seed(run_seed: int, group_id: int, index: int) -> int:
    """Return a 63-bit seed, the same for every attempt of a rollout and different for every rollout."""
    digest = hashlib.blake2b(f"{run_seed}/{group_id}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def lease_lost(lease: RolloutLease) -> LeaseLostError:
    """Return the error for a worker whose lease has ended."""
    return LeaseLostError(f"attempt {lease.attempt} of rollout {lease.rollout_id} no longer holds its lease")
