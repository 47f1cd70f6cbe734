"""Attempts of rollouts: claimed, renewed on progress, released, expired, or cancelled.

The rollout state machine is queued -> leased -> finished, and leased -> queued for another attempt. `trajectories.py`
ends the attempts that leave a record.
"""

from collections.abc import Collection, Iterable

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.ledger.cancelling import cancel_forks, cancel_rollouts
from quartet.ledger.group_rows import IS_OPEN
from quartet.ledger.leases import RELEASE, RENEW, attempt_of, lease_lost, lease_of, lease_rows, queued
from quartet.ledger.run_database import RunDatabase
from quartet.ledger.schema import group_sizes, groups, rollouts
from quartet.ledger.values import read_value
from quartet.types import GroupState, Purpose, RolloutLease, RolloutState, Status

_IS_LEASED = rollouts.c.state == sa.literal_column(f"'{RolloutState.LEASED}'")
"""Condition for leased rollouts. The state is a literal, because SQLite uses the index of deadlines only if the query's
text implies its condition."""


class Rollouts:
    """Rollouts of all purposes, and the leases on them."""

    def __init__(self, db: RunDatabase) -> None:
        self._db = db

    def claim(self, worker: str, count: int, lease_seconds: float, *, training: bool = True) -> list[RolloutLease]:
        """Lease up to `count` queued rollouts: evaluation first, then the oldest. Workers do not block each other.

        Without `training` only evaluation rollouts are leased.
        """
        with self._db.write_beside() as connection:
            ids = list(connection.execute(queued(training=training).limit(count)).scalars())
            if not ids:
                return []
            now = self._db.now(connection)
            leased = {"state": RolloutState.LEASED, "worker": worker, "deadline": now + lease_seconds}
            claimed = sa.update(rollouts).where(rollouts.c.id.in_(ids))
            connection.execute(claimed.values(attempt=rollouts.c.attempt + 1, **leased))
            seed = read_value(connection, "seed", 0)
            rows = lease_rows(connection, ids)
            _begin_groups(connection, {row.group_id for row in rows.values() if row.leased_at is None}, now)
        return [lease_of(rows[rollout_id], seed) for rollout_id in ids]

    def renew(self, lease: RolloutLease, lease_seconds: float) -> None:
        """Extend a lease after progress of the rollout. Raises `LeaseLostError` if it is no longer held."""
        with self._db.write_beside() as connection:
            held = RENEW(connection, **attempt_of(lease), until=self._db.now(connection) + lease_seconds).rowcount
        if not held:
            raise lease_lost(lease)

    def held(self, leases: Iterable[RolloutLease]) -> set[tuple[int, int]]:
        """Return (rollout id, attempt) of those of the `leases` that are still held."""
        asked = {(lease.rollout_id, lease.attempt) for lease in leases}
        leased = (rollouts.c.id.in_([rollout_id for rollout_id, _ in asked]), rollouts.c.state == RolloutState.LEASED)
        with self._db.read() as connection:
            rows = connection.execute(sa.select(rollouts.c.id, rollouts.c.attempt).where(*leased))
            return asked & {(row.id, row.attempt) for row in rows}

    def release(self, lease: RolloutLease) -> None:
        """Release a lease and requeue its unfinished rollout; a lease that is already lost is ignored.

        The attempt does not count towards `max_attempts`. Forks of the rollout are cancelled.
        """
        with self._db.write_beside() as connection:
            if RELEASE(connection, **attempt_of(lease)).rowcount:
                cancel_forks(self._db, connection, [lease.rollout_id])
        self._db.notifier.notify("worker")

    def expire(self, max_attempts: int | None = None) -> int:
        """Requeue the rollouts whose lease expired; return their number.

        A rollout that has used up `max_attempts` is cancelled instead: it may be crashing its workers. The forks of an
        expired attempt are cancelled, since the next attempt makes its own.
        """
        with self._db.read() as connection:
            overdue = sa.and_(_IS_LEASED, rollouts.c.deadline < self._db.now(connection))
            first = sa.select(rollouts.c.id).where(overdue).order_by(rollouts.c.deadline).limit(1)
            if not connection.execute(first).first():
                return 0
        return self._end_leases(overdue, max_attempts)

    def requeue_all(self) -> int:
        """Requeue all leased rollouts and return their number. Call it at a resume, when no worker is alive.

        The deadlines of open groups restart at their next lease, so that the pause of the run does not count.
        """
        ended = self._end_leases(rollouts.c.state == RolloutState.LEASED, None)
        with self._db.write() as connection:
            unfinished = sa.update(groups).where(groups.c.state == GroupState.OPEN)
            connection.execute(unfinished.values(leased_at=None))
        return ended

    def begin_missed_groups(self) -> None:
        """Record the time of the first lease of open training groups that have none but a leased rollout.

        On PostgreSQL a claim skips a group whose row another transaction has locked, such as one that ends a rollout.
        Without a later claim of its rollouts, the group would have no deadline.
        """
        is_leased = (rollouts.c.group_id == groups.c.id, rollouts.c.state == RolloutState.LEASED)
        waiting = (IS_OPEN, groups.c.purpose == Purpose.TRAIN, groups.c.leased_at.is_(None))
        missed = sa.select(groups.c.id).where(*waiting, sa.select(rollouts.c.id).where(*is_leased).exists())
        with self._db.read() as connection:
            group_ids = set(connection.execute(missed).scalars())
        if group_ids:
            with self._db.write_beside() as connection:
                _begin_groups(connection, group_ids, self._db.now(connection))

    def cancel(self, rollout_ids: Collection[int]) -> int:
        """Cancel those of these rollouts that are queued, and their forks. Return the number without the forks."""
        with self._db.write() as connection:
            waiting = sa.and_(rollouts.c.id.in_(rollout_ids), rollouts.c.state == RolloutState.QUEUED)
            cancelled = cancel_rollouts(self._db, connection, waiting)
        self._db.notifier.notify("worker", "manager")
        return cancelled

    def unfinished(self, purpose: Purpose) -> dict[str, int]:
        """Return the numbers of queued and leased rollouts of one purpose, by state."""
        waiting = (RolloutState.QUEUED, RolloutState.LEASED)
        by_state = sa.select(rollouts.c.state, sa.func.count().label("size")).group_by(rollouts.c.state)
        with self._db.read() as connection:
            mine = by_state.where(rollouts.c.state.in_(waiting), rollouts.c.purpose == purpose)
            sizes = {row.state: row.size for row in connection.execute(mine)}
        return {state.value: sizes.get(state, 0) for state in waiting}

    def count_queued(self, most: int) -> int:
        """Return the number of queued rollouts of all purposes, counted up to `most`."""
        # In the order of an index: PostgreSQL would otherwise read the table from its beginning, where none is queued.
        some = sa.select(rollouts.c.id).where(rollouts.c.state == RolloutState.QUEUED)
        some = some.order_by(rollouts.c.purpose, rollouts.c.id).limit(most)
        with self._db.read() as connection:
            return connection.execute(sa.select(sa.func.count()).select_from(some.subquery())).scalar_one()

    def queued_for_training(self) -> int:
        """Return the number of training rollouts that were ever queued."""
        # Each trained policy has a group for the same rollouts.
        mine = group_sizes.c.policy == self._db.trained[0]
        query = sa.select(sa.func.coalesce(sa.func.sum(group_sizes.c.rollouts), 0)).where(mine)
        with self._db.read() as connection:
            return int(connection.execute(query).scalar_one())

    def ended_in_training(self) -> int:
        """Return the number of training rollouts that have ended, cancelled ones included."""
        return self.queued_for_training() - sum(self.unfinished(Purpose.TRAIN).values())

    def _end_leases(self, condition: sa.ColumnElement[bool], max_attempts: int | None) -> int:
        db = self._db
        with db.write() as connection:
            rows = connection.execute(sa.select(rollouts).where(condition)).all()
            for row in rows:
                failures = row.failures + (max_attempts is not None)
                spent = max_attempts is not None and failures >= max_attempts
                then = (
                    {"state": RolloutState.FINISHED, "status": Status.CANCELLED, "finished_at": db.clock()}
                    if spent
                    else {"state": RolloutState.QUEUED, "worker": "", "deadline": None}
                )
                connection.execute(sa.update(rollouts).where(rollouts.c.id == row.id).values(failures=failures, **then))
                ended = "lease_expired" if max_attempts is not None else "requeued_at_resume"
                kind = "rollout_out_of_attempts" if spent else ended
                db.record(connection, kind, rollout_id=row.id, attempt=row.attempt, worker=row.worker)
            cancel_forks(db, connection, [row.id for row in rows])
        db.notifier.notify("worker")
        return len(rows)


def _begin_groups(connection: Connection, group_ids: set[int], now: float) -> None:
    """Record the time of the first lease of these groups. Groups that another transaction has locked are skipped, so
    that claims do not wait for each other; `begin_missed_groups` records their times later."""
    if group_ids:
        new = sa.select(groups.c.id).where(groups.c.id.in_(group_ids), groups.c.leased_at.is_(None))
        mine = connection.execute(new.with_for_update(skip_locked=True)).scalars().all()
        connection.execute(sa.update(groups).where(groups.c.id.in_(mine)).values(leased_at=now))
