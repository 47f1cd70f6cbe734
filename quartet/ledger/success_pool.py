"""Entries of the success pool, and their membership in the groups to which replay adds them.

The functions run inside the caller's transaction.
"""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.ledger.schema import TrajectoryKind, groups, pool, replays, rollouts, trajectories
from quartet.types import ReplayRule, Task


def store_entries(connection: Connection, policy: str, task: Task, rollout_ids: Sequence[int], keep: int) -> None:
    """Put successful rollouts of a task into a policy's pool; the newest `keep` entries of each task are active."""
    of_task = active(policy, task)
    newest = sa.select(pool.c.rollout_id).where(*of_task).order_by(pool.c.id.desc())
    there = set(connection.execute(newest).scalars())
    for rollout_id in (new for new in rollout_ids[-keep:] if new not in there):
        connection.execute(sa.insert(pool).values(policy=policy, task_key=task.key, rollout_id=rollout_id))
    in_use = list(connection.execute(newest.limit(keep)).scalars())
    older = sa.update(pool).where(*of_task, pool.c.rollout_id.not_in(in_use))
    connection.execute(older.values(outdated=True))


def active(policy: str, task: Task) -> tuple[sa.ColumnElement[bool], ...]:
    """Return the conditions for active entries of the policy's pool for a task."""
    return (pool.c.task_key == task.key, pool.c.policy == policy, ~pool.c.outdated)


def active_of_family(policy: str, task: Task) -> tuple[sa.ColumnElement[bool], ...]:
    """Return the conditions for active entries of the policy's pools for all tasks of the task's family."""
    # The keys of a family begin with its name, but so do those of a family whose name contains it, followed by a slash.
    candidates = pool.c.task_key.startswith(f"{task.env}/{task.family}/", autoescape=True)
    mine = (rollouts.c.id == pool.c.rollout_id, groups.c.env == task.env, groups.c.family == task.family)
    of_family = sa.exists().where(rollouts.c.group_id == groups.c.id, *mine)
    return (candidates, pool.c.policy == policy, ~pool.c.outdated, of_family)


def stored(policy: str, rollout_id: sa.ColumnElement[int]) -> sa.ScalarSelect[int]:
    """Select the policy's trajectory of a rollout; if it has several, the first successful one."""
    part = trajectories.alias("part")
    final = part.c.kind == sa.literal_column(f"'{TrajectoryKind.FINAL}'")
    mine = sa.select(part.c.id).where(part.c.rollout_id == rollout_id, final, part.c.policy == policy)
    return mine.order_by(part.c.success.desc(), part.c.id).limit(1).scalar_subquery()


def join_group(connection: Connection, policy: str, group_id: int, replayed: Mapping[int, ReplayRule]) -> None:
    """Add stored rollouts to a group as members."""
    for rollout_id, rule in replayed.items():
        joined = {"group_id": group_id, "trajectory_id": stored(policy, sa.literal(rollout_id)), "rule": rule}
        connection.execute(sa.insert(replays).values(joined))
