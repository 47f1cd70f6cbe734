"""Growth of open groups: children of their rollouts, further rounds that control adds, and their cancellation.

A child names its parent and the last call that it shares with it. What it shares is stored as the `Beginning` that its
attempts go on from, so a child never waits for its parent. Children belong to the attempt that forked them: when that
ends without a final record, and is not recycled, they are cancelled with it.
"""

from collections.abc import Callable, Collection, Sequence

import sqlalchemy as sa
from msgspec.structs import replace
from sqlalchemy import Connection

from quartet.errors import LedgerError
from quartet.ledger.beginnings import Child
from quartet.ledger.fates import Fates
from quartet.ledger.groups import ROUND_HAS_ENDED, Groups
from quartet.ledger.leases import IS_HELD, attempt_of, lease_lost
from quartet.ledger.members import Members
from quartet.ledger.recycling import Recycling
from quartet.ledger.schema import groups, rollouts, trajectories
from quartet.types import (
    Beginning,
    Call,
    EpisodeState,
    FinishReason,
    Fork,
    Group,
    GroupState,
    RolloutLease,
    RolloutState,
    Root,
    Round,
    Status,
    TokenColumns,
)


class Forks(Recycling, Groups, Members, Fates):
    def fork(
        self,
        lease: RolloutLease,
        calls: Sequence[Call],
        call_index: int,
        count: int,
        most_forks: int,
        state: EpisodeState | None = None,
    ) -> list[int]:
        """Queue `count` children of a running rollout that share its `calls` up to `call_index` and answer the next
        prompt anew, but not more than `most_forks` in the whole group. Return their ids.

        They begin in the `state` of its environment, or, without one, by repeating its actions. Where the attempt
        forked after that call before, its children of then are returned. Raises `LeaseLostError` when the lease was
        lost.
        """
        place = Fork(rollout_id=lease.rollout_id, call_index=call_index)
        child = self._pack_child(place, Beginning(calls=shared_calls(calls, call_index), state=state))
        with self._database.write() as connection:
            held = connection.execute(IS_HELD, attempt_of(lease)).first() is not None
            earlier = self._forks_of(connection, place) if held else []
            queued: list[int] = []
            if held and not earlier:
                room = max(most_forks - self._live_forks(connection, rollouts.c.group_id == lease.group_id), 0)
                queued = self._grow(connection, lease.group_id, [child] * min(count, room))
        if not queued:
            self._discard_beginnings([child])
        if not held:
            raise lease_lost(lease)
        self.doorbells.ring("worker")
        return earlier or queued

    def end_round(self, group_id: int, more: Callable[[Group], Round]) -> bool:
        """Let an open group whose round has ended grow by what `more` answers, or close it when that is nothing, in one
        transaction. Return whether it grew.

        `more` is asked before that transaction, and again when a member was added or lost meanwhile. A group that
        waits for members, because a running one was forked, is left as it is. Raises `LedgerError` when the group is
        not open, or when a fork names a rollout of another group, one without a record, or a call that it does not
        have.
        """
        grew = None
        while grew is None:
            grew = self._end_round(group_id, more)
        self.doorbells.ring("worker", "manager")
        return grew

    def extend(self, group_id: int, more: Round) -> bool:
        """Add rollouts to an open group. Return False, and add none, once it has closed. Raises like `end_round`."""
        wanted = [self._wanted(group_id, one) for one in more]
        with self._database.write() as connection:
            grown = self._grow(connection, group_id, wanted)
        if not grown:
            self._discard_beginnings(wanted)
        self.doorbells.ring("worker")
        return bool(grown)

    def cancel(self, rollout_ids: Collection[int]) -> int:
        """Cancel the queued ones of these rollouts, and their forks. Return how many, without the forks."""
        with self._database.write() as connection:
            waiting = sa.and_(rollouts.c.id.in_(rollout_ids), rollouts.c.state == RolloutState.QUEUED)
            cancelled = self._cancel(connection, waiting)
        self.doorbells.ring("worker", "manager")
        return cancelled

    def forked_rollouts(self, group_id: int | None = None) -> int:
        """Return how many rollouts of the run, or of one group, were forked from another one and not cancelled."""
        with self._database.read() as connection:
            return self._live_forks(connection, sa.true() if group_id is None else rollouts.c.group_id == group_id)

    def _wanted(self, group_id: int, one: Root | Fork) -> Child | None:
        """Return what is to be queued: a child, or None for a rollout that begins with a reset."""
        if isinstance(one, Root):
            return None
        with self._database.read() as connection:
            parent = sa.select(rollouts.c.id).where(rollouts.c.id == one.rollout_id, rollouts.c.group_id == group_id)
            known = connection.execute(parent).first() is not None
        record = self.load_final(one.rollout_id) if known else None
        if record is None or not 0 <= one.call_index < len(record.calls):
            raise LedgerError(
                f"group {group_id} has no finished rollout {one.rollout_id} with a call {one.call_index} to fork from",
                "the allocator forks from the members that `more` is given",
            )
        return self._pack_child(one, Beginning(calls=shared_calls(record.calls, one.call_index)))

    def _end_round(self, group_id: int, more: Callable[[Group], Round]) -> bool | None:
        """Return None where the group has changed since `more` was asked."""
        with self._database.read() as connection:
            seen = self._ended_round(connection, group_id)
        if seen is None:
            return False
        wanted = [self._wanted(group_id, one) for one in more(self.load_group(group_id))]
        with self._database.write() as connection:
            if self._ended_round(connection, group_id) != seen:
                return None
            if wanted and not self._grow(connection, group_id, wanted):
                raise LedgerError(f"group {group_id} is not open, so it cannot grow")
            if not wanted:
                self._close(connection, group_id)
        return bool(wanted)

    def _grow(self, connection: Connection, group_id: int, wanted: Sequence[Child | None]) -> list[int]:
        """Return the ids of the new members; none when the group is not open. Its deadline counts from their first
        lease."""
        count = len(wanted)
        larger = sa.update(groups).where(groups.c.id == group_id, groups.c.state == GroupState.OPEN)
        sizes = {"num_rollouts": groups.c.num_rollouts + count, "enough": groups.c.enough + count}
        grown = larger.values(sizes | {"leased_at": None}).returning(groups.c.num_rollouts, groups.c.purpose)
        row = connection.execute(grown).one_or_none() if wanted else None
        if row is None:
            return []
        queued = {"group_id": group_id, "purpose": row.purpose, "state": RolloutState.QUEUED}
        new = sa.insert(rollouts).returning(rollouts.c.id)
        return [
            connection.execute(new, queued | {"index": index} | self._write_child(connection, child)).scalar_one()
            for index, child in enumerate(wanted, start=row.num_rollouts - count)
        ]

    def _ended_round(self, connection: Connection, group_id: int) -> tuple[int, ...] | None:
        """Return the size of a group and its countable trajectories, by which `more` decides; None while members are
        waited for."""
        size = sa.select(groups.c.num_rollouts).where(groups.c.id == group_id, ROUND_HAS_ENDED)
        num_rollouts: int | None = connection.execute(size).scalar()
        counted = (trajectories.c.group_id == group_id, trajectories.c.counted)
        members = sa.select(trajectories.c.id).where(*counted).order_by(trajectories.c.id)
        return None if num_rollouts is None else (num_rollouts, *connection.execute(members).scalars())

    def _forks_of(self, connection: Connection, place: Fork) -> list[int]:
        at_place = (rollouts.c.parent_id == place.rollout_id, rollouts.c.parent_call == place.call_index)
        query = sa.select(rollouts.c.id).where(*at_place, rollouts.c.status != Status.CANCELLED)
        return list(connection.execute(query.order_by(rollouts.c.id)).scalars())

    def _live_forks(self, connection: Connection, among: sa.ColumnElement[bool]) -> int:
        forked = (rollouts.c.parent_id.is_not(None), rollouts.c.status != Status.CANCELLED)
        query = sa.select(sa.func.count()).select_from(rollouts).where(*forked, among)
        return connection.execute(query).scalar_one()


def shared_calls(calls: Sequence[Call], call_index: int) -> list[Call]:
    """Return the calls that a child shares with its parent, wholly borrowed, and the parent's next prompt, where there
    is one, without a response: a child that is shown another one has diverged."""
    shared = [replace(call, borrowed=len(call.prompt_ids) + len(call.response)) for call in calls[: call_index + 1]]
    following = [
        replace(call, response=TokenColumns(), borrowed=len(call.prompt_ids), finish_reason=FinishReason.ABORT)
        for call in calls[call_index + 1 : call_index + 2]
    ]
    return shared + following
