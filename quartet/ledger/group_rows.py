"""Admit groups, close them, and change their state, inside the caller's transaction."""

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.errors import LedgerError
from quartet.ledger.cancelling import cancel_rollouts
from quartet.ledger.run_database import RunDatabase
from quartet.ledger.schema import families, groups, rollouts, trajectories
from quartet.ledger.serving import served_version
from quartet.types import GroupState, Purpose, RolloutPlan, RolloutState

ADMITTED_STATES = (GroupState.OPEN, GroupState.CLOSED, GroupState.TRAINABLE, GroupState.CLAIMED)
"""States of training groups that hold an admission slot: admitted, and not yet trained or dropped."""
COUNTED = sa.and_(trajectories.c.group_id == groups.c.id, trajectories.c.counted)
"""Condition for trajectories that count in their group."""
_HAS_ENOUGH = sa.and_(
    groups.c.enough < groups.c.num_rollouts,
    sa.select(sa.func.count(trajectories.c.rollout_id.distinct())).where(COUNTED).scalar_subquery() >= groups.c.enough,
)
IS_OPEN = groups.c.state == sa.literal_column(f"'{GroupState.OPEN}'")
"""Condition for open groups. The state is a literal, because SQLite uses the indexes of open groups only if the query's
text implies their conditions."""
ROUND_HAS_ENDED = sa.and_(
    groups.c.unfinished <= groups.c.num_rollouts - groups.c.enough,
    sa.or_(groups.c.unfinished == 0, _HAS_ENOUGH),
)
"""Condition that a group's round has ended: all its rollouts are finished, or enough of them are countable.

An index has the open groups with enough finished rollouts (`schema.MAY_END`)."""


def admit_group(db: RunDatabase, connection: Connection, plan: RolloutPlan) -> int:
    """Write a group and its queued rollouts, and the groups of other policies beside it. Return the group's id."""
    task, training = plan.task, plan.purpose is Purpose.TRAIN
    if training:
        _count_admission(connection, task.family)
    group = {
        "purpose": plan.purpose,
        "policy": db.policy,
        "tag": plan.tag,
        "env": task.env,
        "family": task.family,
        "task_seed": task.seed,
        "params": task.params,
        "num_rollouts": plan.num_rollouts,
        "enough": plan.num_rollouts if plan.enough is None else plan.enough,
        "max_turns": plan.max_turns,
        "temperature": plan.temperature,
        "state": GroupState.OPEN,
        "oldest_version": served_version(connection, db.policy) if training else None,
        "created_at": db.clock(),
    }
    group_id: int = connection.execute(sa.insert(groups).values(group).returning(groups.c.id)).scalar_one()
    queued = {"group_id": group_id, "purpose": plan.purpose, "state": RolloutState.QUEUED}
    connection.execute(sa.insert(rollouts), [{**queued, "index": index} for index in range(plan.num_rollouts)])
    for policy in db.trained if training else ():
        if policy != db.policy:
            own = {"policy": policy, "oldest_version": served_version(connection, policy)}
            connection.execute(sa.insert(groups).values(group | own | {"rollouts_of": group_id}))
    return group_id


def close_group(db: RunDatabase, connection: Connection, group_id: int) -> int:
    """Close an open group and those beside it, and cancel its unfinished members. Return the number of cancelled
    members."""
    has_enough = sa.select(groups.c.id).where(groups.c.id == group_id, _HAS_ENOUGH)
    in_time = connection.execute(has_enough).first() is not None
    move_group(connection, group_id, GroupState.OPEN, GroupState.CLOSED, closed_at=db.clock())
    beside = sa.update(groups).where(groups.c.rollouts_of == group_id, groups.c.state == GroupState.OPEN)
    connection.execute(beside.values(state=GroupState.CLOSED, closed_at=db.clock()))
    cancelled = cancel_rollouts(db, connection, rollouts.c.group_id == group_id)
    if cancelled and not in_time:
        db.record(connection, "group_deadline", group_id=group_id, cancelled=cancelled)
    return cancelled


def move_group(connection: Connection, group_id: int, before: GroupState, after: GroupState, **values: object) -> None:
    """Change a group's state, and other columns with it. Raises `LedgerError` if the group is not in the state
    `before`."""
    move = sa.update(groups).where(groups.c.id == group_id, groups.c.state == before)
    if not connection.execute(move.values(state=after, **values)).rowcount:
        raise LedgerError(f"group {group_id} is not {before}, so it cannot become {after}")


def _count_admission(connection: Connection, family: str) -> None:
    more = sa.update(families).where(families.c.family == family).values(train_groups=families.c.train_groups + 1)
    if not connection.execute(more).rowcount:
        connection.execute(sa.insert(families).values(family=family, train_groups=1))
