"""Quarantine of groups that cannot be trained: failure counts and permanent drops."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.ledger.members import WAITING, drop_groups
from quartet.ledger.run_database import RunDatabase
from quartet.ledger.schema import groups, pool, replays, trajectories
from quartet.ledger.values import policy_key, read_value, write_value
from quartet.types import Batch

QUARANTINED = "quarantined"
"""Drop reason of a group whose train step failed repeatedly."""
_STREAK, _TOTAL = "quarantined_in_a_row", "quarantined_groups"
"""Keys of the run's values that count quarantined batches in a row, and all quarantined groups."""
_NONE = {"train_step": 0, "batches": 0}


def count_failure(db: RunDatabase, connection: Connection, batch: Batch, error: str) -> int:
    """Count a failed train step at each group of its batch. Return the largest number of failures of a group."""
    mine = groups.c.id.in_([group.group_id for group in batch.groups])
    connection.execute(sa.update(groups).where(mine).values(failures=groups.c.failures + 1))
    db.record(connection, "train_step_failed", train_step=batch.train_step, batch_id=batch.batch_id, error=error)
    return connection.execute(sa.select(sa.func.max(groups.c.failures)).where(mine)).scalar_one()


def quarantine(db: RunDatabase, connection: Connection, batch: Batch, group_ids: Sequence[int], error: str) -> int:
    """Drop groups of a failed batch permanently; see `Batches.quarantine`."""
    ids = [group.group_id for group in batch.groups]
    waiting = set(connection.execute(sa.select(groups.c.id).where(*WAITING, groups.c.id.in_(ids))).scalars())
    bad = [group for group in batch.groups if group.group_id in waiting.intersection(group_ids)]
    drop_groups(connection, [group.group_id for group in bad], QUARANTINED)
    connection.execute(sa.update(groups).where(groups.c.id.in_(ids)).values(failures=0))
    _take_from_pool(connection, db.policy, [group.group_id for group in bad])
    write_value(connection, _TOTAL, read_value(connection, _TOTAL, 0) + len(bad))
    db.record(
        connection,
        "batch_quarantined",
        train_step=batch.train_step,
        batch_id=batch.batch_id,
        groups=[group.group_id for group in bad],
        tasks=[group.task.key for group in bad],
        of_groups=len(ids),
        error=error,
    )
    return _count_streak(connection, db.policy, batch.train_step)


def quarantined_groups(db: RunDatabase) -> int:
    """Return the number of quarantined groups of the run."""
    return db.value(_TOTAL, 0)


def forget_streaks(db: RunDatabase) -> None:
    """Reset the counts of consecutive quarantined batches of all policies."""
    for policy in db.trained:
        db.set_value(policy_key(_STREAK, policy), _NONE)


def _count_streak(connection: Connection, policy: str, train_step: int) -> int:
    """Count a quarantined batch, and return the number of such batches in a row. A later train step than at the last
    call means that a batch was committed in between."""
    key = policy_key(_STREAK, policy)
    last: dict[str, int] = read_value(connection, key, _NONE)
    batches = 1 if train_step > last["train_step"] else last["batches"] + 1
    reached = max(train_step, last["train_step"])
    write_value(connection, key, {"train_step": reached, "batches": batches})
    return batches


def _take_from_pool(connection: Connection, policy: str, group_ids: list[int]) -> None:
    joined = sa.select(trajectories.c.rollout_id).join(replays, replays.c.trajectory_id == trajectories.c.id)
    joined = joined.where(replays.c.group_id.in_(group_ids))
    mine = (pool.c.policy == policy, pool.c.rollout_id.in_(joined))
    connection.execute(sa.update(pool).where(*mine).values(outdated=True))
