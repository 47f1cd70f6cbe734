"""Write trajectories and their blobs inside the caller's transaction, and read them by rollout."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.ledger.database.prepared import Prepared, inserted
from quartet.ledger.run_database import RunDatabase
from quartet.ledger.schema import TrajectoryKind, groups, trajectories
from quartet.ledger.trajectory_store import PackedTrajectory, TrajectoryStore
from quartet.ledger.version_list import version_list
from quartet.types import RolloutLease, Trajectory

MOST_ERROR_CHARACTERS = 500
"""Maximum length of a trajectory's error in its row; the record has the full text."""
_APPEND = Prepared(inserted(trajectories))
_BESIDE = sa.select(groups.c.id).where(
    groups.c.rollouts_of == sa.bindparam("lead"), groups.c.policy == sa.bindparam("policy")
)
"""Select the group that another policy has for the rollouts of the group `lead`."""


def trajectory_row(
    lease: RolloutLease, trajectory: Trajectory, packed: PackedTrajectory, created_at: float
) -> dict[str, Any]:
    """Return the columns of a trajectory's row that do not depend on its rollout's end (`place_of`)."""
    versions = trajectory.versions
    return {
        "rollout_id": lease.rollout_id,
        "policy": trajectory.policy,
        "role": trajectory.role,
        "part": trajectory.part,
        "attempt": lease.attempt,
        "purpose": lease.purpose.value,
        "family": lease.task.family,
        "status": trajectory.status.value,
        "excluded": "",
        "success": trajectory.success,
        "reward": trajectory.reward,
        "turns": len(trajectory.turns),
        "valid_actions": trajectory.num_valid_actions,
        "error": trajectory.error[:MOST_ERROR_CHARACTERS],
        "prompt_tokens": trajectory.num_prompt_tokens,
        "response_tokens": trajectory.num_response_tokens,
        "oldest_version": min(versions, default=None),
        "newest_version": max(versions, default=None),
        "versions": version_list(versions),
        "wall_seconds": trajectory.wall_seconds,
        "blob": packed.record.digest,
        "blob_bytes": len(packed.record.data),
        "created_at": created_at,
    }


def place_of(
    connection: Connection, lease: RolloutLease, trajectory: Trajectory, kind: TrajectoryKind
) -> dict[str, Any]:
    """Return the kind of a trajectory, its group and whether it counts there, as columns of its row.

    A frozen policy, and in an evaluation each policy but the first, has no group for the rollout. Its trajectory is
    stored in the rollout's group and does not count.
    """
    countable = kind is TrajectoryKind.FINAL and trajectory.status.countable
    if trajectory.policy == lease.policy:
        return {"kind": kind.value, "group_id": lease.group_id, "counted": countable}
    own = connection.execute(_BESIDE, {"lead": lease.group_id, "policy": trajectory.policy}).scalar()
    counted = countable and own is not None
    return {"kind": kind.value, "group_id": own or lease.group_id, "counted": counted}


def insert_trajectory(
    store: TrajectoryStore, connection: Connection, row: dict[str, Any], packed: PackedTrajectory
) -> None:
    """Add a row of `trajectories` with its record, and with references to its pictures, which are stored before."""
    store.write(connection, packed)
    if not packed.pictures:
        _APPEND(connection, **row)
        return
    with_id = sa.insert(trajectories).values(row).returning(trajectories.c.id)
    store.refer_to_pictures(connection, connection.execute(with_id).scalar_one(), packed)


def final_record(db: RunDatabase, rollout_id: int, part: str | None = None) -> Trajectory | None:
    """Return the policy's final trajectory of a rollout, without pictures; None if there is none.

    `part` is needed if the rollout has several of the policy. Raises `DamagedBlobError`.
    """
    mine = (trajectories.c.rollout_id == rollout_id, trajectories.c.policy == db.policy)
    of_part = () if part is None else (trajectories.c.part == part,)
    final = (*mine, *of_part, trajectories.c.kind == TrajectoryKind.FINAL)
    with db.read() as connection:
        blob = connection.execute(sa.select(trajectories.c.blob).where(*final)).scalar()
    return None if blob is None else db.store.load(blob)
