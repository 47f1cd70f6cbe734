"""The batch state machine: claimed -> committed, or claimed -> released. And what it does to groups and uses.

Every use of a trajectory is a row; a live use of role `fresh` is unique per trajectory, by an index of the database.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.data.ledger.members import MEMBERS, WAITING, Members, task_of
from quartet.data.ledger.policies import Policies
from quartet.data.ledger.pool import REPLAYED
from quartet.data.schema import batches, groups, policies, replays, trajectories, uses
from quartet.errors import LeaseLostError
from quartet.types import Batch, BatchState, Group, GroupState, Policy

FRESH, REPLAY = "fresh", "replay"
"""Roles of a use: a rollout's own group is trained, or another group that it joined."""

_CLAIMED = batches.c.state == BatchState.CLAIMED
_OLDEST = (groups.c.oldest_version.nulls_first(), groups.c.id)
"""The earliest deadline first: how long a group may still wait is told by its oldest token."""


class Batches(Members, Policies):
    def claim_batch(
        self, trainer: str, groups: int, max_lag: int, on_late: Literal["mask", "drop"], lease_seconds: float
    ) -> Batch | None:
        """Lease the oldest `groups` trainable groups, or return None when there are not that many.

        One batch is in training at a time: None too while another trainer holds one, and after the last train step
        that `limit_train_steps` allows. What this trainer held before is released: it was started again.
        A member whose blob is damaged is marked so, and the claim is made again without it.
        """
        while True:
            with self._database.write() as connection:
                claimed = self._claim(connection, trainer, groups, max_lag, on_late, lease_seconds)
                if claimed is None:
                    return None
                rows = self._batch_rows(connection, claimed.id)
                replayed = self._replayed_rows(connection, claimed.id)
            loaded, damaged = self._load_groups(rows, replayed)
            if not damaged:
                return Batch(
                    batch_id=claimed.id,
                    attempt=claimed.attempt,
                    train_step=claimed.train_step,
                    start_version=claimed.start_version,
                    groups=loaded,
                )
            with self._database.write() as connection:
                self._mark_damaged(connection, damaged)
                self._release(connection, batches.c.id == claimed.id)
                self._drop_too_small(connection)  # while it was claimed it was not among the waiting

    def renew_batch(self, batch: Batch, lease_seconds: float) -> None:
        """Extend the lease of a batch. Raises `LeaseLostError` when it is no longer held."""
        with self._database.write() as connection:
            deadline = self._clock() + lease_seconds
            held = connection.execute(sa.update(batches).where(_held(batch)).values(deadline=deadline)).rowcount
        if not held:
            raise _lost(batch)

    def commit_batch(self, batch: Batch, policy_path: str, metrics: dict[str, Any]) -> Policy:
        """The batch is trained and its policy is on disk: make both official in one transaction.

        Raises `LeaseLostError` when the lease was lost; nothing is committed then, and an event says so.
        """
        committed = {"state": BatchState.COMMITTED, "committed_at": self._clock(), "metrics": metrics}
        policy = None
        with self._database.write() as connection:
            if connection.execute(sa.update(batches).where(_held(batch)).values(committed)).rowcount:
                trained = sa.update(groups).where(groups.c.batch_id == batch.batch_id)
                connection.execute(trained.values(state=GroupState.TRAINED))
                policy = self._insert_policy(connection, policy_path, batch.train_step)
            else:
                self._event(connection, "batch_superseded", batch_id=batch.batch_id, train_step=batch.train_step)
        if policy is None:
            raise _lost(batch)
        return policy

    def release_batch(self, batch: Batch) -> None:
        """Give a batch back untrained: its groups are trainable again. A batch that is already lost is fine."""
        with self._database.write() as connection:
            self._release(connection, _held(batch))

    def expire_batches(self) -> int:
        """Release the batches whose lease ended; returns how many."""
        overdue = sa.and_(_CLAIMED, batches.c.deadline < self._clock())
        with self._database.read() as connection:
            if not connection.execute(sa.select(batches.c.id).where(overdue)).first():
                return 0
        with self._database.write() as connection:
            return self._release(connection, overdue)

    def train_step(self) -> int:
        """Number of the last committed train step; 0 before the first."""
        with self._database.read() as connection:
            return self._train_step(connection)

    def limit_train_steps(self, last: int | None) -> None:
        """No batch is claimed after train step `last`; None lifts the limit."""
        self.set_value("last_train_step", last)

    def stop_claims(self) -> bool:
        """Let the batch in training be the last one; True when there is none."""
        with self._database.write() as connection:
            claimed = connection.execute(sa.select(batches.c.id).where(_CLAIMED)).first()
            self._set_value(connection, "last_train_step", self._train_step(connection) + (claimed is not None))
        return claimed is None

    def roll_back(self, train_step: int) -> int:
        """Undo the train steps after `train_step`, whose optimizer state a crash has lost; returns how many.

        Their groups are trainable again and their policies are marked rolled back; version numbers are not reused.
        """
        undone = sa.and_(batches.c.state == BatchState.COMMITTED, batches.c.train_step > train_step)
        with self._database.write() as connection:
            ids = list(connection.execute(sa.select(batches.c.id).where(undone)).scalars())
            self._return_groups(connection, ids)
            connection.execute(sa.update(batches).where(undone).values(state=BatchState.RELEASED))
            connection.execute(sa.update(policies).where(policies.c.train_step > train_step).values(rolled_back=True))
            if ids:
                self._event(connection, "rolled_back", to_train_step=train_step, train_steps=len(ids))
        return len(ids)

    def _claim(
        self, connection: Connection, trainer: str, count: int, max_lag: int, on_late: str, lease_seconds: float
    ) -> Any:
        """The row of a new batch, or None."""
        mine_or_overdue = sa.or_(batches.c.trainer == trainer, batches.c.deadline < self._clock())
        self._release(connection, sa.and_(_CLAIMED, mine_or_overdue))
        step, last = self._train_step(connection), self._value(connection, "last_train_step", None)
        if connection.execute(sa.select(batches.c.id).where(_CLAIMED)).first() or (last is not None and step >= last):
            return None
        start_version = self._latest_policy(connection).version
        self._drop_over_lag(connection, start_version - max_lag, on_late)
        oldest = sa.select(groups.c.id).where(*WAITING).order_by(*_OLDEST).limit(count)
        group_ids = list(connection.execute(oldest).scalars())
        if len(group_ids) < count:
            return None
        batch = {
            "state": BatchState.CLAIMED,
            "attempt": 1,
            "trainer": trainer,
            "deadline": self._clock() + lease_seconds,
            "train_step": step + 1,
            "start_version": start_version,
            "created_at": self._clock(),
        }
        row = connection.execute(sa.insert(batches).values(batch).returning(batches)).one()
        taken = sa.update(groups).where(groups.c.id.in_(group_ids))
        connection.execute(taken.values(state=GroupState.CLAIMED, batch_id=row.id))
        members = {FRESH: self._batch_rows(connection, row.id), REPLAY: self._replayed_rows(connection, row.id)}
        used = [
            {"trajectory_id": member.id, "batch_id": row.id, "role": role}
            for role in members
            for member in members[role]
        ]
        connection.execute(sa.insert(uses), used)
        return row

    def _batch_rows(self, connection: Connection, batch_id: int) -> Sequence[Any]:
        """Countable members of a batch's groups with the columns of their group, group by group, oldest first."""
        task = (groups.c.env, groups.c.task_seed, groups.c.params)
        query = MEMBERS.add_columns(*task).join(groups, trajectories.c.group_id == groups.c.id)
        query = query.where(groups.c.batch_id == batch_id).order_by(None)
        return connection.execute(query.order_by(*_OLDEST, "index")).all()

    def _replayed_rows(self, connection: Connection, batch_id: int) -> Sequence[Any]:
        """Stored trajectories that joined the batch's groups."""
        query = REPLAYED.join(groups, replays.c.group_id == groups.c.id).where(groups.c.batch_id == batch_id)
        return connection.execute(query).all()

    def _load_groups(self, rows: Sequence[Any], replayed: Sequence[Any]) -> tuple[list[Group], dict[int, str]]:
        loaded: list[Group] = []
        damaged: dict[int, str] = {}
        for group_id, of_group in groupby(rows, key=lambda row: row.group_id):
            members = list(of_group)
            joined = [row for row in replayed if row.joined_group == group_id]
            readable, unreadable = self._load_members([*members, *joined])
            loaded.append(Group(group_id=group_id, task=task_of(members[0]), members=readable))
            damaged |= unreadable
        return loaded, damaged

    def _drop_over_lag(self, connection: Connection, oldest_allowed: int, on_late: str) -> None:
        """Drop groups with a token (`drop`) or only tokens (`mask`) of a version below `oldest_allowed`."""
        version = groups.c.oldest_version if on_late == "drop" else groups.c.newest_version
        query = sa.select(groups.c.id).where(*WAITING, version < oldest_allowed)
        if late := list(connection.execute(query).scalars()):
            self._drop(connection, late, "over_lag")

    def _release(self, connection: Connection, condition: sa.ColumnElement[bool]) -> int:
        rows = connection.execute(sa.select(batches).where(condition)).all()
        ids = [row.id for row in rows]
        if not ids:
            return 0
        self._return_groups(connection, ids)
        connection.execute(sa.update(batches).where(batches.c.id.in_(ids)).values(state=BatchState.RELEASED))
        for row in rows:
            self._event(connection, "batch_released", batch_id=row.id, train_step=row.train_step, trainer=row.trainer)
        return len(ids)

    def _return_groups(self, connection: Connection, batch_ids: list[int]) -> None:
        connection.execute(sa.update(uses).where(uses.c.batch_id.in_(batch_ids)).values(voided=True))
        back = {"state": GroupState.TRAINABLE, "batch_id": None}
        connection.execute(sa.update(groups).where(groups.c.batch_id.in_(batch_ids)).values(back))

    def _train_step(self, connection: Connection) -> int:
        committed = batches.c.state == BatchState.COMMITTED
        return connection.execute(sa.select(sa.func.max(batches.c.train_step)).where(committed)).scalar() or 0


def _held(batch: Batch) -> sa.ColumnElement[bool]:
    return sa.and_(
        batches.c.id == batch.batch_id, batches.c.attempt == batch.attempt, batches.c.state == BatchState.CLAIMED
    )


def _lost(batch: Batch) -> LeaseLostError:
    return LeaseLostError(f"batch {batch.batch_id} (train step {batch.train_step}) no longer holds its lease")
