"""How an open group grows: children of its rollouts, and further rounds that control adds; and what it no longer wants.

A child names its parent and the last call that it shares with it. What it shares is stored as the record that its first
attempt goes on from, so a child never waits for its parent. Children belong to the attempt that forked them: when that
ends without a final record, and is not recycled, they are cancelled with it.
"""

from collections.abc import Callable, Collection, Sequence

import sqlalchemy as sa
from msgspec.structs import replace
from sqlalchemy import Connection

from quartet.errors import LedgerError
from quartet.ledger.fates import Fates
from quartet.ledger.groups import Groups
from quartet.ledger.leases import attempt_of, lease_lost
from quartet.ledger.members import Members
from quartet.ledger.recycling import Recycling
from quartet.ledger.schema import groups, rollouts
from quartet.ledger.trajectory_store import PackedTrajectory
from quartet.types import (
    Call,
    FinishReason,
    Fork,
    Group,
    GroupState,
    RolloutLease,
    RolloutState,
    Root,
    Round,
    Status,
    Task,
    TokenColumns,
    Trajectory,
)

Beginning = tuple[Fork, PackedTrajectory] | None
"""Where a child begins, and the record of what it shares with its parent; None where a rollout begins with a reset."""
_HELD = sa.select(rollouts.c.id).where(
    rollouts.c.id == sa.bindparam("rollout_id"),
    rollouts.c.attempt == sa.bindparam("lease_attempt"),
    rollouts.c.state == RolloutState.LEASED,
)


class Forks(Recycling, Groups, Members, Fates):
    def fork(
        self, lease: RolloutLease, calls: Sequence[Call], call_index: int, count: int, most_forks: int
    ) -> list[int]:
        """Queue `count` children of a running rollout that share its `calls` up to `call_index` and answer the next
        prompt anew, but not more than `most_forks` in the whole group. Return their ids.

        Where the attempt forked after that call before, its children of then are returned. Raises `LeaseLostError` when
        the lease was lost.
        """
        place = Fork(rollout_id=lease.rollout_id, call_index=call_index)
        shared = self._store.pack(beginning_of(lease.task, calls, place))
        with self._database.write() as connection:
            held = connection.execute(_HELD, attempt_of(lease)).first() is not None
            children = self._forks_of(connection, place) if held else []
            if held and not children:
                room = max(most_forks - self._live_forks(connection, rollouts.c.group_id == lease.group_id), 0)
                children = self._grow(connection, lease.group_id, [(place, shared)] * min(count, room))
        if not held:
            raise lease_lost(lease)
        self.doorbells.ring("worker")
        return children

    def drop_forks(self, lease: RolloutLease) -> None:
        """Cancel what was forked from a running rollout, because its attempt took another way than those before it.

        A lease that is already lost is fine: its forks went with it.
        """
        with self._database.write() as connection:
            if connection.execute(_HELD, attempt_of(lease)).first():
                self._cancel_forks(connection, [lease.rollout_id])
        self.doorbells.ring("worker", "manager")

    def end_round(self, group_id: int, more: Callable[[Group], Round]) -> bool:
        """Let an open group whose round has ended grow by what `more` answers, or close it when that is nothing, in one
        transaction. Return whether it grew.

        Raises `LedgerError` when the group is not open, or when a fork names a rollout of another group, one without a
        record, or a call that it does not have.
        """
        wanted = [self._beginning(group_id, one) for one in more(self.load_group(group_id))]
        with self._database.write() as connection:
            if not wanted:
                self._close(connection, group_id)
            elif not self._grow(connection, group_id, wanted):
                raise LedgerError(f"group {group_id} is not open, so it cannot grow")
        self.doorbells.ring("worker", "manager")
        return bool(wanted)

    def extend(self, group_id: int, more: Round) -> bool:
        """Add rollouts to an open group. Return False, and add none, once it has closed. Raises like `end_round`."""
        wanted = [self._beginning(group_id, one) for one in more]
        with self._database.write() as connection:
            grown = self._grow(connection, group_id, wanted)
        self.doorbells.ring("worker")
        return bool(grown)

    def cancel(self, rollout_ids: Collection[int]) -> int:
        """Cancel the queued ones of these rollouts, and their forks. Return how many, without the forks."""
        with self._database.write() as connection:
            waiting = sa.and_(rollouts.c.id.in_(rollout_ids), rollouts.c.state == RolloutState.QUEUED)
            cancelled = self._cancel(connection, waiting)
        self.doorbells.ring("worker", "manager")
        return cancelled

    def forked_rollouts(self) -> int:
        """Return how many rollouts of the run were forked from another one and not cancelled."""
        with self._database.read() as connection:
            return self._live_forks(connection, sa.true())

    def _beginning(self, group_id: int, one: Root | Fork) -> Beginning:
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
        return one, self._store.pack(beginning_of(record.task, record.calls, one))

    def _grow(self, connection: Connection, group_id: int, wanted: Sequence[Beginning]) -> list[int]:
        """Return the ids of the new members; none when the group is not open. Its deadline counts from their first
        lease."""
        count = len(wanted)
        larger = sa.update(groups).where(groups.c.id == group_id, groups.c.state == GroupState.OPEN)
        sizes = {"num_rollouts": groups.c.num_rollouts + count, "enough": groups.c.enough + count}
        grown = larger.values(sizes | {"leased_at": None}).returning(groups.c.num_rollouts, groups.c.purpose)
        row = connection.execute(grown).one_or_none() if wanted else None
        if row is None:
            return []
        for packed in {id(one): one[1] for one in wanted if one is not None}.values():
            self._store.write(connection, packed)
        queued = {"group_id": group_id, "purpose": row.purpose, "state": RolloutState.QUEUED}
        members = [
            queued | {"index": index} | _columns(one)
            for index, one in enumerate(wanted, start=row.num_rollouts - count)
        ]
        return list(connection.execute(sa.insert(rollouts).returning(rollouts.c.id), members).scalars())

    def _forks_of(self, connection: Connection, place: Fork) -> list[int]:
        at_place = (rollouts.c.parent_id == place.rollout_id, rollouts.c.parent_call == place.call_index)
        query = sa.select(rollouts.c.id).where(*at_place, rollouts.c.status != Status.CANCELLED)
        return list(connection.execute(query.order_by(rollouts.c.id)).scalars())

    def _live_forks(self, connection: Connection, among: sa.ColumnElement[bool]) -> int:
        forked = (rollouts.c.parent_id.is_not(None), rollouts.c.status != Status.CANCELLED)
        query = sa.select(sa.func.count()).select_from(rollouts).where(*forked, among)
        return connection.execute(query).scalar_one()


def _columns(one: Beginning) -> dict[str, int | str | None]:
    """The columns of a member that say where it begins."""
    if one is None:
        return {"parent_id": None, "parent_call": None, "partial": ""}
    place, packed = one
    return {"parent_id": place.rollout_id, "parent_call": place.call_index, "partial": packed.record.digest}


def beginning_of(task: Task, calls: Sequence[Call], place: Fork) -> Trajectory:
    """Return the record that a child goes on from: the calls that it shares, wholly borrowed, and the parent's next
    prompt, where there is one, without a response: a child that is shown another one has diverged."""
    shared = [
        replace(call, borrowed=len(call.prompt_ids) + len(call.response)) for call in calls[: place.call_index + 1]
    ]
    following = [
        replace(call, response=TokenColumns(), borrowed=len(call.prompt_ids), finish_reason=FinishReason.ABORT)
        for call in calls[place.call_index + 1 : place.call_index + 2]
    ]
    return Trajectory(
        task=task, status=Status.CANCELLED, calls=shared + following, turns=[], rewards={}, success=False, parent=place
    )
