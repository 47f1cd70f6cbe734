"""Cancel rollouts and their forks, and drop groups. A fork (child) does not count if its parent has no final record."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.ledger.run_database import RunDatabase
from quartet.ledger.schema import TrajectoryKind, groups, rollouts, trajectories
from quartet.types import GroupState, RolloutState, Status


def cancel_rollouts(db: RunDatabase, connection: Connection, unwanted: sa.ColumnElement[bool]) -> int:
    """Cancel those of the `unwanted` rollouts that are unfinished, and their forks. Return the number without the
    forks."""
    ids = _end_as_cancelled(db, connection, unwanted, rollouts.c.state != RolloutState.FINISHED)
    cancel_forks(db, connection, ids)
    return len(ids)


def drop_groups(db: RunDatabase, *unwanted: sa.ColumnElement[bool], reason: str) -> int:
    """Drop the `unwanted` groups and cancel their unfinished rollouts. Return the number of groups."""
    dropped = {"state": GroupState.DROPPED, "reason": reason, "closed_at": db.clock()}
    with db.write() as connection:
        ids = list(connection.execute(sa.select(groups.c.id).where(*unwanted)).scalars())
        cancel_rollouts(db, connection, rollouts.c.group_id.in_(ids))
        connection.execute(sa.update(groups).where(groups.c.id.in_(ids)).values(dropped))
    return len(ids)


def cancel_forks(db: RunDatabase, connection: Connection, parents: Sequence[int]) -> None:
    """Cancel all forks of these rollouts, at any depth. The records of finished forks no longer count."""
    cancelled: list[int] = []
    while parents:
        live_forks = (rollouts.c.parent_id.in_(parents), rollouts.c.status != Status.CANCELLED)
        forks = _end_as_cancelled(db, connection, *live_forks)
        if forks:
            records = (trajectories.c.rollout_id.in_(forks), trajectories.c.kind == TrajectoryKind.FINAL)
            not_counted = {"status": Status.CANCELLED, "counted": False}
            connection.execute(sa.update(trajectories).where(*records).values(not_counted))
            db.record(connection, "forks_cancelled", parents=list(parents), forks=list(forks))
        cancelled += forks
        parents = forks
    if cancelled:  # groups last, against deadlock: a fork that fails locks its own row, then its group's
        _shrink_groups(db, connection, cancelled)


def _shrink_groups(db: RunDatabase, connection: Connection, forks: Sequence[int]) -> None:
    """For each group of cancelled forks, reduce the number of countable members at which it closes, and start its
    deadline if it has none yet."""
    gone = sa.select(sa.func.count()).where(rollouts.c.id.in_(forks), rollouts.c.group_id == groups.c.id)
    smaller = {
        "enough": groups.c.enough - gone.scalar_subquery(),
        "leased_at": sa.func.coalesce(groups.c.leased_at, db.now(connection)),
    }
    mine = sa.select(rollouts.c.group_id).where(rollouts.c.id.in_(forks))
    connection.execute(sa.update(groups).where(groups.c.id.in_(mine)).values(smaller))


def _end_as_cancelled(db: RunDatabase, connection: Connection, *conditions: sa.ColumnElement[bool]) -> Sequence[int]:
    ended = {"state": RolloutState.FINISHED, "status": Status.CANCELLED, "finished_at": db.clock()}
    update = sa.update(rollouts).where(*conditions).values(ended)
    return connection.execute(update.returning(rollouts.c.id)).scalars().all()
