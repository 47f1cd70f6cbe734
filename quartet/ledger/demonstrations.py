"""Demonstrations: successful trajectories from outside this run, stored as finished rollouts and put into the success
pool."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.ledger.run_database import RunDatabase
from quartet.ledger.schema import TrajectoryKind, groups, rollouts
from quartet.ledger.success_pool import store_entries
from quartet.ledger.trajectory_rows import insert_trajectory, trajectory_row
from quartet.ledger.trajectory_store import PackedTrajectory
from quartet.types import GroupState, Purpose, RolloutLease, RolloutState, Trajectory

Entry = tuple[Trajectory, PackedTrajectory]


def store_task(db: RunDatabase, connection: Connection, entries: list[Entry], keep: int) -> None:
    """Store the demonstrations of one task as a closed group of finished rollouts, and the newest `keep` of them in the
    pool."""
    (first, _), now = entries[0], db.clock()
    group = {
        "purpose": Purpose.DEMONSTRATION,
        "policy": db.policy,
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
    ids = [_store_one(db, connection, group_id, index, *entry) for index, entry in enumerate(entries)]
    store_entries(connection, db.policy, first.task, ids, keep)


def _store_one(
    db: RunDatabase,
    connection: Connection,
    group_id: int,
    index: int,
    trajectory: Trajectory,
    packed: PackedTrajectory,
) -> int:
    now = db.clock()
    rollout: dict[str, Any] = {
        "group_id": group_id,
        "index": index,
        "purpose": Purpose.DEMONSTRATION,
        "state": RolloutState.FINISHED,
        "status": trajectory.status,
        "attempt": 1,
        "finished_at": now,
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
        deadline=now,
    )
    # Policy versions of another run have no meaning in this one.
    ageless = {"oldest_version": None, "newest_version": None, "versions": None}
    own = {"kind": TrajectoryKind.FINAL.value, "policy": db.policy, "counted": trajectory.status.countable}
    row = trajectory_row(lease, trajectory, packed, now) | {"group_id": group_id} | ageless | own
    db.store.write_pictures(connection, [packed])
    insert_trajectory(db.store, connection, row, packed)
    return rollout_id
