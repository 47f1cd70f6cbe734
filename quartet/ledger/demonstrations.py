"""Demonstrations: successes from outside this run, stored as ordinary rows and entered into the success pool."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.ledger.pool import Pool
from quartet.ledger.rollouts import Rollouts
from quartet.ledger.schema import TrajectoryKind, groups, rollouts, trajectories
from quartet.ledger.trajectory_store import PackedTrajectory
from quartet.types import GroupState, Purpose, RolloutLease, RolloutState, Trajectory

_Entry = tuple[Trajectory, PackedTrajectory]


class Demonstrations(Rollouts, Pool):
    def store_demonstrations(self, demonstrations: Sequence[Trajectory], keep: int) -> int:
        """Store demonstrations in one transaction, and put the newest `keep` of each task into its pool.

        Returns the number of new ones; exact duplicates are not stored again.
        """
        entries: list[_Entry] = [(trajectory, self._store.pack(trajectory)) for trajectory in demonstrations]
        of_demonstrations = trajectories.c.purpose == Purpose.DEMONSTRATION
        new: dict[str, dict[str, _Entry]] = defaultdict(dict)
        with self._database.write() as connection:
            mine = sa.select(trajectories.c.blob).where(of_demonstrations, trajectories.c.policy == self.policy)
            there = set(connection.execute(mine).scalars())
            for trajectory, packed in entries:
                if packed.record.digest not in there:
                    new[trajectory.task.key][packed.record.digest] = trajectory, packed
            for of_task in new.values():
                self._store_task(connection, list(of_task.values()), keep)
        return sum(len(of_task) for of_task in new.values())

    def _store_task(self, connection: Connection, entries: list[_Entry], keep: int) -> None:
        """Store the demonstrations of one task as a closed group of finished rollouts."""
        (first, _), now = entries[0], self._clock()
        group = {
            "purpose": Purpose.DEMONSTRATION,
            "policy": self.policy,
            "tag": "",
            "env": first.task.env,
            "family": first.task.family,
            "task_seed": first.task.seed,
            "params": first.task.params,
            "num_rollouts": len(entries),
            "enough": len(entries),
            "max_turns": max(len(trajectory.turns) for trajectory, _ in entries),
            "temperature": 1.0,
            "state": GroupState.CLOSED,
            "created_at": now,
            "closed_at": now,
        }
        group_id = connection.execute(sa.insert(groups).values(group).returning(groups.c.id)).scalar_one()
        ids = [self._store_one(connection, group_id, index, *entry) for index, entry in enumerate(entries)]
        self._store_successes(connection, first.task, ids, keep)

    def _store_one(
        self, connection: Connection, group_id: int, index: int, trajectory: Trajectory, packed: PackedTrajectory
    ) -> int:
        rollout: dict[str, Any] = {
            "group_id": group_id,
            "index": index,
            "purpose": Purpose.DEMONSTRATION,
            "state": RolloutState.FINISHED,
            "status": trajectory.status,
            "attempt": 1,
            "finished_at": self._clock(),
        }
        rollout_id = connection.execute(sa.insert(rollouts).values(rollout).returning(rollouts.c.id)).scalar_one()
        lease = RolloutLease(
            rollout_id=rollout_id,
            group_id=group_id,
            attempt=1,
            index=index,
            task=trajectory.task,
            max_turns=len(trajectory.turns),
            sampling_seed=0,
            temperature=1.0,
            purpose=Purpose.DEMONSTRATION,
            deadline=self._clock(),
        )
        # Policy versions of another run have no meaning in this one.
        ageless = {"oldest_version": None, "newest_version": None, "versions": None}
        own = {"policy": self.policy, "group_id": group_id, "counted": trajectory.status.countable}
        row = self._row(lease, trajectory, packed) | {"kind": TrajectoryKind.FINAL.value} | ageless | own
        self._insert(connection, row, packed)
        return rollout_id
