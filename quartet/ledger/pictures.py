"""References from trajectories to their pictures, sizes of the pictures, and conditions under which they are kept.

The functions run inside the caller's transaction, or return conditions for its queries. A picture is one blob,
regardless of how many trajectories refer to it; a row of `pictures` is one reference. References are deleted first, and
a blob without references in a later transaction. A crash in between leaves an unreferenced blob for
`Disk.collect_garbage`.
"""

from collections import defaultdict
from collections.abc import Iterable

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.ledger.schema import batches, groups, pictures, pool, replays, trajectories
from quartet.types import GroupState, Purpose

_IS_OVER = sa.or_(
    groups.c.state.in_((GroupState.TRAINED, GroupState.DROPPED)),
    sa.and_(groups.c.purpose != Purpose.TRAIN, groups.c.state == GroupState.CLOSED),
)
_POOLED = sa.select(pool.c.id).where(pool.c.rollout_id == trajectories.c.rollout_id, ~pool.c.outdated).exists()
_JOINED = groups.alias("joined")
_EARLIER = pictures.alias("earlier")


def drop_references(connection: Connection, trajectory_ids: Iterable[int]) -> dict[str, int]:
    """Delete the references of these trajectories; return the bytes of each picture referred to, by digest."""
    mine = pictures.c.trajectory_id.in_(list(trajectory_ids))
    gone = connection.execute(sa.delete(pictures).where(mine).returning(pictures.c.digest, pictures.c.bytes))
    return {row.digest: row.bytes for row in gone}


def picture_bytes(connection: Connection, after: int, last: int) -> int:
    """Return the bytes of pictures whose first referring trajectory has an id above `after` and up to `last`."""
    earlier = sa.select(_EARLIER.c.digest).where(
        _EARLIER.c.digest == pictures.c.digest, _EARLIER.c.trajectory_id < pictures.c.trajectory_id
    )
    mine = pictures.c.trajectory_id.between(after + 1, last)
    new = sa.select(sa.func.sum(pictures.c.bytes)).where(mine, ~earlier.exists())
    return int(connection.execute(new).scalar() or 0)


def pictures_of(connection: Connection, trajectory_ids: Iterable[int]) -> dict[int, list[str]]:
    """Return the digests of the stored pictures by trajectory; a trajectory without any has an empty list."""
    rows = connection.execute(sa.select(pictures).where(pictures.c.trajectory_id.in_(list(trajectory_ids))))
    found: defaultdict[int, list[str]] = defaultdict(list)
    for row in rows:
        found[row.trajectory_id].append(row.digest)
    return found


def is_over(checkpoint_step: int) -> sa.ColumnElement[bool]:
    """Return the condition that a group is final, even after a roll-back to `checkpoint_step`.

    A group is final if it is trained, dropped, or closed without being for training.
    """
    return sa.and_(_IS_OVER, ~_may_be_trained(groups, checkpoint_step))


def is_needed(checkpoint_step: int) -> sa.ColumnElement[bool]:
    """Return the condition that the pool holds the trajectory, or that it joined a group that may still be trained."""
    joined = sa.select(replays.c.id).join(_JOINED, replays.c.group_id == _JOINED.c.id)
    waited_for = _may_be_trained(_JOINED, checkpoint_step)
    return sa.or_(_POOLED, joined.where(replays.c.trajectory_id == trajectories.c.id, waited_for).exists())


def _may_be_trained(table: sa.FromClause, checkpoint_step: int) -> sa.ColumnElement[bool]:
    """Return the condition that a group waits for a train step, or would after a roll-back to `checkpoint_step`."""
    step = sa.select(batches.c.train_step).where(batches.c.id == table.c.batch_id).scalar_subquery()
    undone = sa.and_(table.c.state == GroupState.TRAINED, step > checkpoint_step)
    return sa.or_(table.c.state.in_((GroupState.TRAINABLE, GroupState.CLAIMED)), undone)
