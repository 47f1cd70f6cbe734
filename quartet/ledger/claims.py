"""Claims of batches: choose and lease groups in one transaction, then load their trajectories from the blobs."""

import sys
from typing import Any, NamedTuple

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy import Connection

from quartet.ledger.batches import CLAIMED, FRESH, REPLAY, Batches
from quartet.ledger.due import due_groups
from quartet.ledger.members import MEMBERS, WAITING, task_of
from quartet.ledger.policies import LAST_TRAIN_STEP
from quartet.ledger.pool import REPLAYED
from quartet.ledger.schema import batches, groups, replays, trajectories, uses
from quartet.ledger.version_list import read_versions
from quartet.types import Batch, BatchState, Group, GroupState, OnLate, Purpose

_UNFINISHED = sa.select(groups.c.oldest_version).where(
    groups.c.purpose == Purpose.TRAIN, groups.c.state.in_((GroupState.OPEN, GroupState.CLOSED))
)
"""Oldest versions of unfinished training groups of all policies."""
_WITHOUT_TOKENS = sys.maxsize
"""Lag of a group without any token: it is claimed first, as if it were the oldest."""
_BATCH = sa.bindparam("batch_id")
_GROUPS = (
    sa.select(groups).where(groups.c.batch_id == _BATCH).order_by(groups.c.oldest_version.nulls_first(), groups.c.id)
)
_FRESH = MEMBERS.join(groups, trajectories.c.group_id == groups.c.id).where(groups.c.batch_id == _BATCH)
_REPLAYED = REPLAYED.join(groups, replays.c.group_id == groups.c.id).where(groups.c.batch_id == _BATCH)


class BatchClaim(Struct, frozen=True, kw_only=True):
    """A claimed batch before its trajectories are read."""

    batch_id: int
    attempt: int
    train_step: int
    start_version: int


class _Waiting(NamedTuple):
    """A trainable group. Lags are relative to the version that the next train step starts from."""

    group_id: int
    lags: list[int]
    """Lags of the versions of its tokens."""

    @property
    def oldest(self) -> int:
        return max(self.lags, default=_WITHOUT_TOKENS)


class Claims(Batches):
    def claim_batch(
        self, trainer: str, groups: int, max_lag: int, on_late: OnLate, lease_seconds: float
    ) -> Batch | None:
        """Lease the policy's oldest `groups` trainable groups and load them.

        A batch that this trainer held is released first: the trainer was restarted. Members with damaged blobs are
        marked, and the claim is repeated without them. Returns None in these cases:

        - There are fewer trainable groups, or `on_late` is "wait" and other groups have to end first (`due_groups`).
        - Another trainer holds a batch of the policy: only one is in training at a time.
        - The last train step that `limit_train_steps` allows is committed.
        """
        while claim := self.lease_batch(trainer, groups, max_lag, on_late, lease_seconds):
            if batch := self.load_batch(claim):
                return batch
        return None

    def lease_batch(
        self, trainer: str, groups: int, max_lag: int, on_late: OnLate, lease_seconds: float
    ) -> BatchClaim | None:
        """Run the transaction of `claim_batch`, without reading trajectories."""
        with self._database.write() as connection:
            train_step = self._next_train_step(connection, trainer)
            if train_step is None:
                return None
            waiting = self._waiting(connection)
            late = {group.group_id for group in waiting if _over_lag(group, max_lag, on_late)}
            if late:
                self._drop(connection, sorted(late), "over_lag")
            in_time = [group for group in waiting if group.group_id not in late]
            group_ids = self._next_groups(connection, in_time, groups, max_lag, on_late)
            claim = self._claim(connection, trainer, train_step, group_ids, lease_seconds) if group_ids else None
        if late:
            self.doorbells.ring("manager")
        return claim

    def load_batch(self, claim: BatchClaim) -> Batch | None:
        """Read the trajectories of a claim. If one is damaged, mark it, release the batch and return None."""
        of_batch = {"batch_id": claim.batch_id}
        members: dict[int, list[Any]] = {}
        with self._database.read() as connection:
            for row in connection.execute(_FRESH, of_batch):
                members.setdefault(row.group_id, []).append(row)
            for row in connection.execute(_REPLAYED, of_batch):
                members[row.joined_group].append(row)
            rows = connection.execute(_GROUPS, of_batch).all()
            ancestry = self._ancestry(connection)
        found, damaged = self._load_members([member for row in rows for member in members.get(row.id, ())])
        if damaged or len(members) < len(rows) or not rows:  # or another process found damage, or took the lease
            self._give_up(claim, damaged)
            return None
        loaded = iter(found)
        return Batch(
            batch_id=claim.batch_id,
            attempt=claim.attempt,
            train_step=claim.train_step,
            start_version=claim.start_version,
            ancestry=ancestry,
            groups=[
                Group(
                    group_id=row.id,
                    task=task_of(row),
                    members=[next(loaded) for _ in members[row.id]],
                    policy=self.policy,
                )
                for row in rows
            ],
        )

    def due_groups(self, groups: int, max_lag: int) -> int:
        """Return the number of unfinished groups that the next train step waits for (`on_late` "wait").

        It is 0 with fewer than `groups` trainable groups.
        """
        with self._database.read() as connection:
            return self._due_groups(connection, self._waiting(connection), groups, max_lag)

    def _give_up(self, claim: BatchClaim, damaged: dict[int, str]) -> None:
        with self._database.write() as connection:
            self._mark_damaged(connection, damaged)
            self._release(connection, batches.c.id == claim.batch_id)
            self._drop_too_small(connection)  # claimed groups are not checked by `_mark_damaged`
        self.doorbells.ring("manager")

    def _next_train_step(self, connection: Connection, trainer: str) -> int | None:
        """Return the number of the train step that `trainer` may begin now, or None."""
        claimed = sa.and_(batches.c.policy == self.policy, CLAIMED)
        mine_or_overdue = sa.or_(batches.c.trainer == trainer, batches.c.deadline < self._now(connection))
        self._release(connection, sa.and_(claimed, mine_or_overdue))
        step, last = self._train_step(connection), self._value(connection, self._key(LAST_TRAIN_STEP), None)
        if connection.execute(sa.select(batches.c.id).where(claimed)).first() or (last is not None and step >= last):
            return None
        return step + 1

    def _waiting(self, connection: Connection) -> list[_Waiting]:
        """Return the trainable groups, earliest deadline first. A group's deadline follows from its oldest token."""
        ancestry, start = self._ancestry(connection), self._latest_policy(connection).version
        trainable = sa.select(groups.c.id, groups.c.versions).where(*WAITING, groups.c.policy == self.policy)
        rows = connection.execute(trainable).all()
        lags = {text: ancestry.lags(read_versions(text), start) for text in {row.versions for row in rows}}
        waiting = [_Waiting(row.id, lags[row.versions]) for row in rows]
        return sorted(waiting, key=lambda group: (-group.oldest, group.group_id))

    def _next_groups(
        self, connection: Connection, waiting: list[_Waiting], count: int, max_lag: int, on_late: OnLate
    ) -> list[int]:
        """Return the oldest `count` trainable groups; none if there are fewer, or if others have to end first."""
        if len(waiting) < count or (on_late == "wait" and self._due_groups(connection, waiting, count, max_lag)):
            return []
        return [group.group_id for group in waiting[:count]]

    def _claim(
        self, connection: Connection, trainer: str, train_step: int, group_ids: list[int], lease_seconds: float
    ) -> BatchClaim:
        start_version = self._latest_policy(connection).version
        batch = {
            "policy": self.policy,
            "state": BatchState.CLAIMED,
            "attempt": 1,
            "trainer": trainer,
            "deadline": self._now(connection) + lease_seconds,
            "train_step": train_step,
            "start_version": start_version,
            "created_at": self._clock(),
        }
        batch_id = connection.execute(sa.insert(batches).values(batch).returning(batches.c.id)).scalar_one()
        taken = sa.update(groups).where(groups.c.id.in_(group_ids))
        connection.execute(taken.values(state=GroupState.CLAIMED, batch_id=batch_id))
        for role, members in ((FRESH, _FRESH), (REPLAY, _REPLAYED)):
            used = members.with_only_columns(trajectories.c.id, _BATCH, sa.literal(role), sa.false()).order_by(None)
            names = ["trajectory_id", "batch_id", "role", "voided"]
            connection.execute(sa.insert(uses).from_select(names, used), {"batch_id": batch_id})
        return BatchClaim(batch_id=batch_id, attempt=1, train_step=train_step, start_version=start_version)

    def _due_groups(self, connection: Connection, waiting: list[_Waiting], count: int, max_lag: int) -> int:
        if len(waiting) < count:
            return 0
        unfinished = connection.execute(_UNFINISHED.where(groups.c.policy == self.policy)).scalars()
        versions = [version for version in unfinished if version is not None]
        lags = self._ancestry(connection).lags(versions, self._latest_policy(connection).version)
        return due_groups([group.oldest for group in waiting], lags, groups_per_batch=count, max_lag=max_lag)


def _over_lag(group: _Waiting, max_lag: int, on_late: OnLate) -> bool:
    """Return whether any token (`drop`) or all tokens (`mask`, `wait`) of a group exceed the lag bound."""
    if not group.lags:
        return False
    return (max if on_late == "drop" else min)(group.lags) > max_lag
