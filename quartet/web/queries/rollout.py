"""One rollout: its attempts, the group it is compared with, and what became of it; by index, however long the run."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy import Connection

from quartet.ledger.schema import TrajectoryKind, batches, groups, policies, replays, rollouts, trajectories, uses
from quartet.types import BatchState

MOST_RELEASED = 50
"""Claims of a group that were given back, as far as they are looked for."""


class RolloutFacts(Struct, frozen=True, kw_only=True):
    """Rows of the ledger about one rollout."""

    rollout: Any
    """Row of `rollouts`."""
    group: Any
    """Row of `groups`."""
    attempts: Sequence[Any]
    """Rows of `trajectories` of one part, oldest first: retried, superseded and late ones too."""
    parts: Sequence[Any]
    """Rows of `trajectories`, one for each part that a policy played, where there are several; else empty."""
    siblings: Sequence[Any]
    """All rollouts of the group in the order of their index, itself too, with columns of their final trajectory, which
    are None before it is stored."""
    joined: Sequence[Any]
    """Stored successes that joined the group."""
    uses: Sequence[Any]
    """By batches: `role`, `voided`, `batch_id`, `state`, `train_step`, `start_version`, `trainer`, `created_at`,
    `committed_at`, `version` (of the policy that came out, None without one)."""
    policies: Sequence[Any]
    """Rows of `policies`: those whose tokens it holds."""

    @property
    def final(self) -> Any | None:
        """The attempt that counts; None while there is none."""
        return next((row for row in self.attempts if row.kind == TrajectoryKind.FINAL), None)

    @property
    def children(self) -> Sequence[Any]:
        """Those of the siblings that were forked from it."""
        return [row for row in self.siblings if row.parent_id == self.rollout.id]

    @property
    def newest(self) -> Any | None:
        """The attempt to show first: the final one, else the newest."""
        return self.final or (self.attempts[-1] if self.attempts else None)


def read_rollout(connection: Connection, rollout_id: int, part: str | None = None) -> RolloutFacts | None:
    """Everything the ledger knows of a rollout, as far as one part goes (by default the first), with the group in which
    that is compared; None for a number that no rollout has."""
    rollout = connection.execute(sa.select(rollouts).where(rollouts.c.id == rollout_id)).one_or_none()
    if rollout is None:
        return None
    stored = _stored(connection, rollout)
    final_parts = [row for row in stored if row.kind == TrajectoryKind.FINAL]
    # What did not come to its end is one record of all parts, without a name.
    parts = list({row.part: row for row in final_parts or [row for row in stored if row.part]}.values())
    chosen = next((row.part for row in parts if row.part == part), parts[0].part if parts else "")
    attempts = [row for row in stored if row.part == chosen or not (row.part or row.kind == TrajectoryKind.FINAL)]
    compared_in = attempts[-1].group_id if attempts else rollout.group_id
    group = connection.execute(sa.select(groups).where(groups.c.id == compared_in)).one()
    final = next((row for row in attempts if row.kind == TrajectoryKind.FINAL), None)
    return RolloutFacts(
        rollout=rollout,
        group=group,
        attempts=attempts,
        parts=parts if len(parts) > 1 else [],
        siblings=_siblings(connection, rollout.group_id, group),
        joined=_joined(connection, group.id),
        uses=_uses(connection, group, final.id) if final else [],
        policies=_policies(connection, attempts),
    )


def read_trajectory(connection: Connection, trajectory_id: int) -> Any | None:
    """The row of a stored attempt; None for a number that none has."""
    return connection.execute(sa.select(trajectories).where(trajectories.c.id == trajectory_id)).one_or_none()


def _stored(connection: Connection, rollout: Any) -> Sequence[Any]:
    # By the groups: there is an index for them, and a group has few rollouts.
    beside = sa.select(groups.c.id).where(groups.c.rollouts_of == rollout.group_id)
    ids = [rollout.group_id, *connection.execute(beside).scalars()]
    of_group = sa.select(trajectories).where(trajectories.c.group_id.in_(ids))
    mine = of_group.where(trajectories.c.rollout_id == rollout.id)
    return connection.execute(mine.order_by(trajectories.c.id)).all()


_MEMBER = ("id", "index", "state", "status", "attempt", "parent_id", "parent_call")
_TRAJECTORY = [
    trajectories.c[name] for name in ("success", "reward", "turns", "excluded", "counted", "response_tokens")
]


def _siblings(connection: Connection, rollouts_of: int, group: Any) -> Sequence[Any]:
    final = sa.and_(
        trajectories.c.group_id == group.id,
        trajectories.c.policy == group.policy,
        trajectories.c.rollout_id == rollouts.c.id,
        trajectories.c.kind == TrajectoryKind.FINAL,
    )
    columns = (*(rollouts.c[name] for name in _MEMBER), *_TRAJECTORY)
    query = sa.select(*columns).select_from(rollouts).outerjoin(trajectories, final)
    return connection.execute(query.where(rollouts.c.group_id == rollouts_of).order_by(rollouts.c.index)).all()


def _joined(connection: Connection, group_id: int) -> Sequence[Any]:
    columns = (replays.c.rule, trajectories.c.rollout_id, trajectories.c.purpose, *_TRAJECTORY)
    query = sa.select(*columns).join(trajectories, replays.c.trajectory_id == trajectories.c.id)
    return connection.execute(query.where(replays.c.group_id == group_id).order_by(replays.c.id)).all()


_MADE = (
    sa.select(policies.c.version)
    .where(policies.c.version >= batches.c.train_step, policies.c.train_step == batches.c.train_step)
    .where(policies.c.name == batches.c.policy, ~policies.c.rolled_back, batches.c.state == BatchState.COMMITTED)
    .order_by(policies.c.version)
    .limit(1)
    .correlate(batches)
    .scalar_subquery()
)
"""The policy that came out of a batch. A version is never below its train step, so the search begins right at it."""


def _uses(connection: Connection, group: Any, trajectory_id: int) -> Sequence[Any]:
    """Uses have an index by batch, not by trajectory: the batches that may have used it are known by other ways."""
    joined = sa.select(groups.c.batch_id).join(replays, replays.c.group_id == groups.c.id)
    joined = joined.where(replays.c.trajectory_id == trajectory_id, groups.c.batch_id.is_not(None))
    ids = {*connection.execute(joined).scalars(), *_released(connection, group)}
    if group.batch_id is not None:
        ids.add(group.batch_id)
    columns = (uses.c.role, uses.c.voided, uses.c.batch_id)
    of_batch = [batches.c[name] for name in ("state", "train_step", "start_version", "trainer", "created_at")]
    query = (
        sa.select(*columns, *of_batch, batches.c.committed_at, _MADE.label("version"))
        .join(batches, uses.c.batch_id == batches.c.id)
        .where(uses.c.batch_id.in_(ids), uses.c.trajectory_id == trajectory_id)
        .order_by(uses.c.id)
    )
    return connection.execute(query).all()


def _released(connection: Connection, group: Any) -> list[int]:
    """Batches that were given back between the group's verdict and the batch it is in now."""
    if group.closed_at is None:
        return []
    until = sa.select(batches.c.train_step).where(batches.c.id == group.batch_id).scalar_subquery()
    given_back = sa.select(batches.c.id).where(
        batches.c.state == BatchState.RELEASED,
        batches.c.train_step > group.judged_at_step,
        batches.c.created_at >= group.closed_at,
    )
    if group.batch_id is not None:
        given_back = given_back.where(batches.c.train_step <= until)
    return list(connection.execute(given_back.order_by(batches.c.train_step).limit(MOST_RELEASED)).scalars())


def _policies(connection: Connection, attempts: Sequence[Any]) -> Sequence[Any]:
    versions = [row.oldest_version for row in attempts] + [row.newest_version for row in attempts]
    known = [version for version in versions if version is not None]
    if not known:
        return []
    mine = policies.c.name.in_({row.policy for row in attempts})
    between = sa.and_(mine, policies.c.version.between(min(known), max(known)))
    return connection.execute(sa.select(policies).where(between).order_by(policies.c.version).limit(50)).all()
