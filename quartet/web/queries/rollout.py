"""Queries about one rollout: its attempts, its group, and the batches that trained on it.

The queries use indexes, so the time taken does not grow with the run.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy import Connection

from quartet.ledger.schema import TrajectoryKind, batches, groups, policies, replays, rollouts, trajectories, uses
from quartet.types import BatchState

MOST_RELEASED = 50
"""Maximum number of released batches in which a trajectory is looked up."""


class RoundFacts(Struct, frozen=True, kw_only=True):
    """The rollouts of a group that control added at one time, with those that were forked from them while they ran."""

    number: int
    """Number of the round, from 1."""
    rows: Sequence[Any]
    """Rows of `RolloutFacts.siblings`."""

    @property
    def countable(self) -> int:
        """Number of rollouts that count in their group."""
        return sum(bool(row.counted) for row in self.rows)

    @property
    def successes(self) -> int:
        """Number of those that succeeded."""
        return sum(bool(row.counted and row.success) for row in self.rows)


class RolloutFacts(Struct, frozen=True, kw_only=True):
    """Rows of the ledger about one rollout and one of its parts.

    A rollout has several parts, one trajectory each, if policies play several roles in it.
    """

    rollout: Any
    """Row of `rollouts`."""
    group: Any
    """Row of `groups`: the group in which the part's trajectories are compared."""
    attempts: Sequence[Any]
    """Rows of `trajectories` of the part, oldest first, including retried, superseded and late ones."""
    parts: Sequence[Any]
    """Rows of `trajectories`, one for each part; empty for a rollout with a single part."""
    siblings: Sequence[Any]
    """Rows of all rollouts of the group, this one included, in the order of their index, with columns of their final
    trajectory (None if it is not stored yet)."""
    joined: Sequence[Any]
    """Rows of the stored successes that joined the group as replays."""
    uses: Sequence[Any]
    """One row for each batch that used the final trajectory: `role`, `voided`, `batch_id`, `state`, `train_step`,
    `start_version`, `trainer`, `created_at`, `committed_at`, `version` (of the policy that the batch made; None if it
    made none)."""
    policies: Sequence[Any]
    """Rows of `policies` for the versions that sampled the part's tokens."""

    @property
    def final(self) -> Any | None:
        """Row of the attempt that counts for the group; None if there is none yet."""
        return next((row for row in self.attempts if row.kind == TrajectoryKind.FINAL), None)

    @property
    def children(self) -> Sequence[Any]:
        """Rows of the siblings that were forked from this rollout."""
        return [row for row in self.siblings if row.parent_id == self.rollout.id]

    @property
    def rounds(self) -> Sequence[RoundFacts]:
        """The siblings by the rounds of the group, the first round first."""
        numbers = sorted({row.round for row in self.siblings})
        return [
            RoundFacts(number=number + 1, rows=[row for row in self.siblings if row.round == number])
            for number in numbers
        ]

    @property
    def has_forks(self) -> bool:
        """True if a rollout of the group was forked from another."""
        return any(row.parent_id is not None for row in self.siblings)

    @property
    def newest(self) -> Any | None:
        """Row of the attempt to show first: the final one, otherwise the newest; None if no attempt is stored."""
        return self.final or (self.attempts[-1] if self.attempts else None)


def read_rollout(connection: Connection, rollout_id: int, part: str | None = None) -> RolloutFacts | None:
    """Return the ledger's rows about a rollout and one of its parts, by default the first.

    None if no rollout has this id.
    """
    rollout = connection.execute(sa.select(rollouts).where(rollouts.c.id == rollout_id)).one_or_none()
    if rollout is None:
        return None
    stored = _stored(connection, rollout)
    final_parts = [row for row in stored if row.kind == TrajectoryKind.FINAL]
    # An attempt that did not finish is stored as one record of all parts, without a part's name.
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
    """Return the row of a trajectory; None if no trajectory has this id."""
    return connection.execute(sa.select(trajectories).where(trajectories.c.id == trajectory_id)).one_or_none()


def _stored(connection: Connection, rollout: Any) -> Sequence[Any]:
    # Select by the groups: `group_id` has an index, and a group has few rollouts.
    beside = sa.select(groups.c.id).where(groups.c.rollouts_of == rollout.group_id)
    ids = [rollout.group_id, *connection.execute(beside).scalars()]
    of_group = sa.select(trajectories).where(trajectories.c.group_id.in_(ids))
    mine = of_group.where(trajectories.c.rollout_id == rollout.id)
    return connection.execute(mine.order_by(trajectories.c.id)).all()


_MEMBER = ("id", "index", "round", "guided", "state", "status", "attempt", "parent_id", "parent_call")
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
"""Select the version of the policy that a batch produced. A version is at least its train step, so the search begins
there."""


def _uses(connection: Connection, group: Any, trajectory_id: int) -> Sequence[Any]:
    """Return the rows of `uses` of a trajectory, one per batch that trains or trained on it.

    `uses` has an index by batch and none by trajectory. Therefore the batches that may have used it are collected
    first: the batch of its group, batches of the groups that it joined as a replay, and released batches.
    """
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
    """Return the batches that were released between the group's verdict and the claim of its present batch."""
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
