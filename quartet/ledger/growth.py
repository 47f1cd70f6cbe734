"""Growth of open groups: forks of their rollouts (children), and further rounds that control adds.

A child names its parent and the last call that both share. The shared calls are stored as the child's `Beginning`, so a
child never waits for its parent. Children belong to the attempt that forked them. If that attempt ends without a final
record and is not recycled, they are cancelled.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection

from quartet.errors import LedgerError
from quartet.ledger.beginnings import Child, pack_child, shared_calls, write_beginning
from quartet.ledger.group_rows import IS_OPEN, ROUND_HAS_ENDED
from quartet.ledger.run_database import RunDatabase
from quartet.ledger.schema import groups, rollouts, trajectories
from quartet.ledger.trajectory_rows import final_record
from quartet.types import Beginning, Fork, GroupState, RolloutState, Root, Status

HOPELESS_ROLLOUTS = 8
"""Number of rollouts without a countable record from which on a group may be hopeless, without cancelled forks."""


def packed_child(db: RunDatabase, group_id: int, one: Root | Fork) -> Child | Root:
    """Return the rollout to queue: a child packed outside of any transaction, or a rollout that begins with a reset.
    Raises `LedgerError` if the fork names a rollout of another group, a rollout without a record, or a call that the
    rollout does not have."""
    if isinstance(one, Root):
        return one
    with db.read() as connection:
        parent = sa.select(rollouts.c.id).where(rollouts.c.id == one.rollout_id, rollouts.c.group_id == group_id)
        known = connection.execute(parent).first() is not None
    record = final_record(db, one.rollout_id) if known else None
    if record is None or not 0 <= one.call_index < len(record.calls):
        raise LedgerError(
            f"group {group_id} has no finished rollout {one.rollout_id} with a call {one.call_index} to fork from",
            "fork only from members of the group that `more` receives",
        )
    return pack_child(db.store.blobs, one, Beginning(calls=shared_calls(record.calls, one.call_index)))


def grow(
    db: RunDatabase, connection: Connection, group_id: int, wanted: Sequence[Child | Root], round_: ColumnElement[int]
) -> list[int]:
    """Queue new members of a group in a round and return their ids; queue none if the group is not open. The group's
    deadline restarts at the first lease of a new member."""
    count = len(wanted)
    larger = sa.update(groups).where(groups.c.id == group_id, groups.c.state == GroupState.OPEN)
    sizes = {"num_rollouts": groups.c.num_rollouts + count, "enough": groups.c.enough + count}
    grown = larger.values(sizes | {"leased_at": None}).returning(groups.c.num_rollouts, groups.c.purpose)
    row = connection.execute(grown).one_or_none() if wanted else None
    if row is None:
        return []
    number = connection.execute(sa.select(round_)).scalar_one()
    queued = {"group_id": group_id, "round": number, "purpose": row.purpose, "state": RolloutState.QUEUED}
    new, blobs = sa.insert(rollouts).returning(rollouts.c.id), db.store.blobs
    return [
        connection.execute(new, queued | {"index": index} | write_beginning(blobs, connection, one)).scalar_one()
        for index, one in enumerate(wanted, start=row.num_rollouts - count)
    ]


def next_round(group_id: int) -> ColumnElement[int]:
    """Select the number of the round after the last one of a group."""
    last = sa.select(sa.func.max(rollouts.c.round)).where(rollouts.c.group_id == group_id)
    return last.scalar_subquery() + 1


def round_of(rollout_id: int) -> ColumnElement[int]:
    """Select the number of a rollout's round."""
    return sa.select(rollouts.c.round).where(rollouts.c.id == rollout_id).scalar_subquery()


def ended_round(connection: Connection, group_id: int) -> tuple[int, ...] | None:
    """Return the size of a group and the ids of its countable trajectories, from which an allocator decides on the next
    round. Return None while the group waits for members, and once it is not open."""
    size = sa.select(groups.c.num_rollouts).where(groups.c.id == group_id, IS_OPEN, ROUND_HAS_ENDED)
    num_rollouts: int | None = connection.execute(size).scalar()
    counted = (trajectories.c.group_id == group_id, trajectories.c.counted)
    members = sa.select(trajectories.c.id).where(*counted).order_by(trajectories.c.id)
    return None if num_rollouts is None else (num_rollouts, *connection.execute(members).scalars())


def most_have_failed(connection: Connection, group_id: int) -> bool:
    """Return whether the group has ended rollouts but no countable record, or so many rollouts without one that further
    rounds are hopeless: at least `HOPELESS_ROLLOUTS`, and three times as many as with one.

    An allocator sees countable members only. If all rollouts of a round fail, it asks for the same round again.
    """
    with_parent = sa.and_(rollouts.c.parent_id.is_not(None), rollouts.c.status == Status.CANCELLED)
    is_ended = (rollouts.c.group_id == group_id, rollouts.c.state == RolloutState.FINISHED, ~with_parent)
    ended = sa.select(sa.func.count()).select_from(rollouts).where(*is_ended)
    counted = (trajectories.c.group_id == group_id, trajectories.c.counted)
    countable = sa.select(sa.func.count(trajectories.c.rollout_id.distinct())).where(*counted)
    good = connection.execute(countable).scalar_one()
    failed = connection.execute(ended).scalar_one() - good
    return failed >= max(HOPELESS_ROLLOUTS, 3 * good) if good else failed > 0
