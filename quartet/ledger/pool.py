"""The success pool: stored successes by task, those of this run and demonstrations from elsewhere."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from quartet.ledger.demonstrations import Entry, store_task
from quartet.ledger.members import load_members, mark_damaged
from quartet.ledger.policy_rows import ancestry_of, newest
from quartet.ledger.run_database import RunDatabase
from quartet.ledger.schema import groups, pool, replays, trajectories
from quartet.ledger.success_pool import active, active_of_family, store_entries, stored
from quartet.ledger.version_list import read_versions
from quartet.types import GroupMember, GroupState, Purpose, ReplayRule, Task, Trajectory


class Pool:
    """The policy's success pool."""

    def __init__(self, db: RunDatabase) -> None:
        self._db = db

    def store(self, task: Task, rollout_ids: Sequence[int], keep: int) -> None:
        """Put successful rollouts of a task into the pool; the newest `keep` entries of each task are active.

        Older entries become outdated. A rollout that is active already is not stored again. The trajectories are not
        modified.
        """
        with self._db.write() as connection:
            store_entries(connection, self._db.policy, task, rollout_ids, keep)

    def store_demonstrations(self, demonstrations: Sequence[Trajectory], keep: int) -> int:
        """Store demonstrations in one transaction, and put the newest `keep` of each task into its pool.

        Returns the number of new ones; exact duplicates are not stored again.
        """
        db = self._db
        entries: list[Entry] = [(trajectory, db.store.pack(trajectory)) for trajectory in demonstrations]
        of_demonstrations = trajectories.c.purpose == Purpose.DEMONSTRATION
        new: dict[str, dict[str, Entry]] = defaultdict(dict)
        with db.write() as connection:
            mine = sa.select(trajectories.c.blob).where(of_demonstrations, trajectories.c.policy == db.policy)
            there = set(connection.execute(mine).scalars())
            for trajectory, packed in entries:
                if packed.record.digest not in there:
                    new[trajectory.task.key][packed.record.digest] = trajectory, packed
            for of_task in new.values():
                store_task(db, connection, list(of_task.values()), keep)
        return sum(len(of_task) for of_task in new.values())

    def usable(self, task: Task, max_replays: int, max_lag: int | None = None) -> list[int]:
        """Return the usable rollouts in the pool of a task, newest first.

        A rollout is usable if it has joined fewer than `max_replays` groups and, with `max_lag`, has no token with a
        larger lag. Demonstrations have no lag.
        """
        return self._usable(active(self._db.policy, task), max_replays, max_lag)

    def usable_of_family(self, task: Task, max_replays: int, max_lag: int | None = None) -> list[int]:
        """Return the usable rollouts in the pools of all tasks of a task's family, newest first."""
        return self._usable(active_of_family(self._db.policy, task), max_replays, max_lag)

    def _usable(self, entries: Sequence[sa.ColumnElement[bool]], max_replays: int, max_lag: int | None) -> list[int]:
        policy = self._db.policy
        joined = sa.select(sa.func.count()).select_from(replays.join(groups, replays.c.group_id == groups.c.id))
        joined = joined.where(replays.c.trajectory_id == trajectories.c.id, groups.c.state != GroupState.DROPPED)
        ready = (
            sa.select(pool.c.rollout_id, trajectories.c.versions)
            .select_from(pool)
            .join(trajectories, trajectories.c.id == stored(policy, pool.c.rollout_id))
            .where(*entries, joined.scalar_subquery() < max_replays)
        )
        with self._db.read() as connection:
            rows = connection.execute(ready.order_by(pool.c.id.desc())).all()
            if max_lag is not None:
                ancestry, version = ancestry_of(connection, policy), newest(connection, policy).version
                rows = [
                    row
                    for row in rows
                    if max(ancestry.lags(read_versions(row.versions), version), default=0) <= max_lag
                ]
            return [row.rollout_id for row in rows]

    def solved_elsewhere(self, task: Task, count: int) -> list[Trajectory]:
        """Return the newest success of each of up to `count` other tasks of the same family, newest first."""
        columns = trajectories.c
        newest_of_task = (
            sa.select(sa.func.max(columns.id))
            .join(groups, columns.group_id == groups.c.id)
            .where(columns.counted, columns.success, columns.policy == self._db.policy)
            .where(columns.purpose.in_([Purpose.TRAIN, Purpose.DEMONSTRATION]), columns.family == task.family)
            .where(columns.blob != "")  # records that were deleted because of their age are not damaged
            .where(groups.c.env == task.env, groups.c.task_seed != task.seed)
            .group_by(groups.c.task_seed)
        )
        query = sa.select(trajectories).where(columns.id.in_(newest_of_task)).order_by(columns.id.desc()).limit(count)
        with self._db.read() as connection:
            rows = connection.execute(query).all()
        members, damaged = load_members(self._db.store, rows)
        if damaged:
            with self._db.write() as connection:
                mark_damaged(self._db, connection, damaged)
        return [member.trajectory for member in members]

    def load(self, rollout_id: int, rules: Mapping[Purpose, ReplayRule]) -> GroupMember | None:
        """Return a stored success as a member to replay, with the rule for its purpose.

        If its blob is damaged, mark it and return None.
        """
        mine = stored(self._db.policy, sa.literal(rollout_id))
        query = sa.select(trajectories).where(trajectories.c.id == mine, trajectories.c.counted)
        with self._db.read() as connection:
            rows = connection.execute(query).all()
        members, damaged = load_members(self._db.store, rows)
        if damaged:
            with self._db.write() as connection:
                mark_damaged(self._db, connection, damaged)
        if not members:
            return None
        rule = rules[Purpose(rows[0].purpose)]
        return GroupMember(rollout_id=rollout_id, trajectory=members[0].trajectory, replay=rule)
