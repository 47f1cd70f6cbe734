"""Stored successes by task, and the groups they join."""

from collections.abc import Iterable, Mapping

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.data.ledger.members import Members
from quartet.data.schema import TrajectoryKind, pool, replays, rollouts, trajectories
from quartet.types import GroupMember, ReplayRule, Task

_FINAL = trajectories.c.kind == TrajectoryKind.FINAL


class Pool(Members):
    def store_successes(self, task: Task, rollout_ids: Iterable[int], keep: int) -> None:
        """Put successful rollouts of a task into the pool; of each task the newest `keep` entries stay.

        A rollout that is there already stays as it is. The trajectories themselves are never touched.
        """
        with self._database.write() as connection:
            there = set(connection.execute(sa.select(pool.c.rollout_id).where(pool.c.task_key == task.key)).scalars())
            new = [rollout_id for rollout_id in rollout_ids if rollout_id not in there]
            for rollout_id in new:
                connection.execute(sa.insert(pool).values(task_key=task.key, rollout_id=rollout_id))
            newest = sa.select(pool.c.id).where(pool.c.task_key == task.key).order_by(pool.c.id.desc()).limit(keep)
            outdated = sa.delete(pool).where(pool.c.task_key == task.key, pool.c.id.not_in(newest))
            connection.execute(outdated)

    def stored_successes(self, task: Task, max_replays: int) -> list[int]:
        """Rollouts in the pool of a task that joined fewer than `max_replays` groups, newest first."""
        ready = sa.select(pool.c.rollout_id).where(pool.c.task_key == task.key, pool.c.replays < max_replays)
        with self._database.read() as connection:
            return list(connection.execute(ready.order_by(pool.c.id.desc())).scalars())

    def load_stored(self, rollout_id: int, rule: ReplayRule) -> GroupMember | None:
        """A stored success as a member to replay; None when its blob is damaged, which is then marked."""
        query = sa.select(trajectories).where(trajectories.c.rollout_id == rollout_id, _FINAL, trajectories.c.counted)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        members, damaged = self._load_members(rows)
        if damaged:
            with self._database.write() as connection:
                self._mark_damaged(connection, damaged)
        return GroupMember(rollout_id=rollout_id, trajectory=members[0].trajectory, replay=rule) if members else None

    def _join(self, connection: Connection, group_id: int, replayed: Mapping[int, ReplayRule]) -> None:
        """Stored rollouts become members of a group; each counts as one replay."""
        for rollout_id, rule in replayed.items():
            of_rollout = sa.select(trajectories.c.id).where(trajectories.c.rollout_id == rollout_id, _FINAL)
            joined = {"group_id": group_id, "trajectory_id": of_rollout.scalar_subquery(), "rule": rule}
            connection.execute(sa.insert(replays).values(joined))
            counted = sa.update(pool).where(pool.c.rollout_id == rollout_id).values(replays=pool.c.replays + 1)
            connection.execute(counted)


REPLAYED = (
    sa.select(trajectories, rollouts.c.index, replays.c.group_id.label("joined_group"), replays.c.rule)
    .join(replays, replays.c.trajectory_id == trajectories.c.id)
    .join(rollouts, trajectories.c.rollout_id == rollouts.c.id)
    .where(trajectories.c.counted)
    .order_by(replays.c.id)
)
"""Stored trajectories with the group that each of them joined, and by which rule."""
