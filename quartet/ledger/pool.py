"""The success pool: stored successes by task, and the groups they join."""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.ledger.members import Members
from quartet.ledger.policies import Policies
from quartet.ledger.schema import TrajectoryKind, groups, pool, replays, trajectories
from quartet.ledger.version_list import read_versions
from quartet.types import GroupMember, GroupState, Purpose, ReplayRule, Task


class Pool(Members, Policies):
    def store_successes(self, task: Task, rollout_ids: Sequence[int], keep: int) -> None:
        """Put successful rollouts of a task into the pool; the newest `keep` entries of each task are active.

        Existing entries are not changed, so storing a group twice is harmless. The trajectories are not modified.
        """
        with self._database.write() as connection:
            self._store_successes(connection, task, rollout_ids, keep)

    def stored_successes(self, task: Task, max_replays: int, max_lag: int | None = None) -> list[int]:
        """Return the usable rollouts in the pool of a task, newest first.

        Usable are those that joined fewer than `max_replays` groups and, with `max_lag`, have no token with a larger
        lag. Demonstrations have no lag.
        """
        joined = sa.select(sa.func.count()).select_from(replays.join(groups, replays.c.group_id == groups.c.id))
        joined = joined.where(replays.c.trajectory_id == trajectories.c.id, groups.c.state != GroupState.DROPPED)
        ready = (
            sa.select(pool.c.rollout_id, trajectories.c.versions)
            .select_from(pool)
            .join(trajectories, trajectories.c.id == self._stored(pool.c.rollout_id))
            .where(*self._of_task(task), joined.scalar_subquery() < max_replays)
        )
        with self._database.read() as connection:
            rows = connection.execute(ready.order_by(pool.c.id.desc())).all()
            if max_lag is not None:
                ancestry, newest = self._ancestry(connection), self._latest_policy(connection).version
                rows = [
                    row for row in rows if max(ancestry.lags(read_versions(row.versions), newest), default=0) <= max_lag
                ]
            return [row.rollout_id for row in rows]

    def load_stored(self, rollout_id: int, rules: Mapping[Purpose, ReplayRule]) -> GroupMember | None:
        """Return a stored success as a member to replay, with the rule for its purpose.

        If its blob is damaged, mark it and return None.
        """
        stored = self._stored(sa.literal(rollout_id))
        query = sa.select(trajectories).where(trajectories.c.id == stored, trajectories.c.counted)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        members, damaged = self._load_members(rows)
        if damaged:
            with self._database.write() as connection:
                self._mark_damaged(connection, damaged)
        if not members:
            return None
        rule = rules[Purpose(rows[0].purpose)]
        return GroupMember(rollout_id=rollout_id, trajectory=members[0].trajectory, replay=rule)

    def _store_successes(self, connection: Connection, task: Task, rollout_ids: Sequence[int], keep: int) -> None:
        of_task = self._of_task(task)
        newest = sa.select(pool.c.rollout_id).where(*of_task).order_by(pool.c.id.desc())
        there = set(connection.execute(newest).scalars())
        for rollout_id in (new for new in rollout_ids[-keep:] if new not in there):
            connection.execute(sa.insert(pool).values(policy=self.policy, task_key=task.key, rollout_id=rollout_id))
        in_use = list(connection.execute(newest.limit(keep)).scalars())
        older = sa.update(pool).where(*of_task, pool.c.rollout_id.not_in(in_use))
        connection.execute(older.values(outdated=True))

    def _of_task(self, task: Task) -> tuple[sa.ColumnElement[bool], ...]:
        """Return the conditions for active entries of the policy's pool for a task."""
        return (pool.c.task_key == task.key, pool.c.policy == self.policy, ~pool.c.outdated)

    def _stored(self, rollout_id: sa.ColumnElement[int]) -> sa.ScalarSelect[int]:
        """Select the policy's trajectory of a rollout; if it has several, the first successful one."""
        part = trajectories.alias("part")
        final = part.c.kind == sa.literal_column(f"'{TrajectoryKind.FINAL}'")
        mine = sa.select(part.c.id).where(part.c.rollout_id == rollout_id, final, part.c.policy == self.policy)
        return mine.order_by(part.c.success.desc(), part.c.id).limit(1).scalar_subquery()

    def _join(self, connection: Connection, group_id: int, replayed: Mapping[int, ReplayRule]) -> None:
        """Add stored rollouts to a group as members."""
        for rollout_id, rule in replayed.items():
            stored = self._stored(sa.literal(rollout_id))
            joined = {"group_id": group_id, "trajectory_id": stored, "rule": rule}
            connection.execute(sa.insert(replays).values(joined))


REPLAYED = (
    sa.select(
        *(trajectories.c[name] for name in ("id", "rollout_id", "blob")),
        replays.c.group_id.label("joined_group"),
        replays.c.rule,
    )
    .select_from(trajectories)
    .join(replays, replays.c.trajectory_id == trajectories.c.id)
    .where(trajectories.c.counted)
    .order_by(replays.c.id)
)
"""Stored trajectories with the group that each of them joined, and the replay rule."""
