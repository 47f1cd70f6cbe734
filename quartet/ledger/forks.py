"""Forks of running rollouts: children that share the parent's calls up to a given call."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.ledger.beginnings import discard, pack_child, shared_calls
from quartet.ledger.cancelling import cancel_forks
from quartet.ledger.growth import grow, round_of
from quartet.ledger.leases import IS_HELD, attempt_of, lease_lost
from quartet.ledger.run_database import RunDatabase
from quartet.ledger.schema import rollouts
from quartet.types import Beginning, Call, EpisodeState, Fork, RolloutLease, Status


class Forks:
    """Children that workers fork from the rollouts that they run."""

    def __init__(self, db: RunDatabase) -> None:
        self._db = db

    def add(
        self,
        lease: RolloutLease,
        calls: Sequence[Call],
        call_index: int,
        count: int,
        most_forks: int,
        state: EpisodeState | None = None,
    ) -> list[int]:
        """Queue up to `count` children of a running rollout, so that its group has at most `most_forks` forks; return
        their ids.

        A child shares the parent's `calls` up to `call_index` and samples a new response to the next prompt. It begins
        in the `state` of the parent's environment or, without `state`, by repeating the parent's actions. If this
        attempt has already forked after that call, its existing children are returned. Raises `LeaseLostError` if the
        lease was lost.
        """
        place = Fork(rollout_id=lease.rollout_id, call_index=call_index)
        beginning = Beginning(calls=shared_calls(calls, call_index), state=state)
        child = pack_child(self._db.store.blobs, place, beginning)
        with self._db.write() as connection:
            held = connection.execute(IS_HELD, attempt_of(lease)).first() is not None
            earlier = _forks_of(connection, place) if held else []
            queued: list[int] = []
            if held and not earlier:
                room = max(most_forks - _live_forks(connection, rollouts.c.group_id == lease.group_id), 0)
                children, round_ = [child] * min(count, room), round_of(lease.rollout_id)
                queued = grow(self._db, connection, lease.group_id, children, round_)
        if not queued:
            discard(self._db, [child])
        if not held:
            raise lease_lost(lease)
        self._db.notifier.notify("worker")
        return earlier or queued

    def cancel(self, lease: RolloutLease) -> None:
        """Cancel the forks of a running rollout, because this attempt has sampled other calls than the attempt that
        forked.

        A lease that is already lost is ignored, since its forks are already cancelled.
        """
        with self._db.write() as connection:
            if connection.execute(IS_HELD, attempt_of(lease)).first():
                cancel_forks(self._db, connection, [lease.rollout_id])
        self._db.notifier.notify("worker", "manager")

    def count(self, group_id: int | None = None) -> int:
        """Return the number of rollouts of the run, or of one group, that were forked and not cancelled."""
        with self._db.read() as connection:
            return _live_forks(connection, sa.true() if group_id is None else rollouts.c.group_id == group_id)


def _forks_of(connection: Connection, place: Fork) -> list[int]:
    at_place = (rollouts.c.parent_id == place.rollout_id, rollouts.c.parent_call == place.call_index)
    query = sa.select(rollouts.c.id).where(*at_place, rollouts.c.status != Status.CANCELLED)
    return list(connection.execute(query.order_by(rollouts.c.id)).scalars())


def _live_forks(connection: Connection, among: sa.ColumnElement[bool]) -> int:
    forked = (rollouts.c.parent_id.is_not(None), rollouts.c.status != Status.CANCELLED)
    query = sa.select(sa.func.count()).select_from(rollouts).where(*forked, among)
    return connection.execute(query).scalar_one()
