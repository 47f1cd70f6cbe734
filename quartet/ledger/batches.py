"""The batch state machine: claimed -> committed, or claimed -> released. And what it does to groups and uses.

How a batch begins is in `claims.py`.

Every use of a trajectory is a row; a live use of role `fresh` is unique per trajectory, by an index of the database.
"""

import math
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.errors import LeaseLostError
from quartet.ledger.members import Members
from quartet.ledger.policies import LAST_TRAIN_STEP, Policies
from quartet.ledger.schema import batches, groups, policies, uses
from quartet.types import Batch, BatchState, GroupState, Policy

FRESH, REPLAY = "fresh", "replay"
"""Roles of a use: a rollout's own group is trained, or another group that it joined."""

CLAIMED = batches.c.state == BatchState.CLAIMED


class Batches(Members, Policies):
    def renew_batch(self, batch: Batch, lease_seconds: float) -> None:
        """Extend the lease of a batch. Raises `LeaseLostError` when it is no longer held."""
        with self._database.write() as connection:
            deadline = self._now(connection) + lease_seconds
            held = connection.execute(sa.update(batches).where(_held(batch)).values(deadline=deadline)).rowcount
        if not held:
            raise _lost(batch)

    def commit_batch(self, batch: Batch, policy_path: str, metrics: dict[str, Any]) -> Policy:
        """The batch is trained and its policy is on disk: make both official in one transaction.

        A metric that is not finite is stored as null: JSON has no word for it. Raises `LeaseLostError` when the lease
        was lost; nothing is committed then, and an event says so.
        """
        storable = {name: None if _is_strange(value) else value for name, value in metrics.items()}
        committed = {"state": BatchState.COMMITTED, "committed_at": self._clock(), "metrics": storable}
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
        self.doorbells.ring("engine", "manager")
        return policy

    def release_batch(self, batch: Batch) -> None:
        """Give a batch back untrained: its groups are trainable again. A batch that is already lost is fine."""
        with self._database.write() as connection:
            self._release_batch(connection, batch)

    def expire_batches(self) -> int:
        """Release the batches whose lease ended; returns how many."""
        with self._database.read() as connection:
            overdue = sa.and_(CLAIMED, batches.c.deadline < self._now(connection))
            if not connection.execute(sa.select(batches.c.id).where(overdue)).first():
                return 0
        with self._database.write() as connection:
            released = self._release(connection, overdue)
        self.doorbells.ring("trainer")
        return released

    def train_step(self) -> int:
        """Number of the policy's last committed train step; 0 before the first."""
        with self._database.read() as connection:
            return self._train_step(connection)

    def least_train_step(self) -> int:
        """Number of the train step that every trained policy has reached."""
        with self._database.read() as connection:
            return min(ledger._train_step(connection) for ledger in self.each())

    def limit_train_steps(self, last: int | None) -> None:
        """No policy's batch is claimed after its train step `last`; None lifts the limit."""
        for ledger in self.each():
            self.set_value(ledger._key(LAST_TRAIN_STEP), last)

    def stop_claims(self) -> bool:
        """Let the batches in training be the last ones; True when there is none."""
        with self._database.write() as connection:
            claimed = set(connection.execute(sa.select(batches.c.policy).where(CLAIMED)).scalars())
            for ledger in self.each():
                last = ledger._train_step(connection) + (ledger.policy in claimed)
                self._set_value(connection, ledger._key(LAST_TRAIN_STEP), last)
        return not claimed

    def roll_back(self, train_step: int) -> int:
        """Undo the policy's train steps after `train_step`, whose optimizer state a crash has lost; returns how many.

        Their groups are trainable again and their policies are marked rolled back; version numbers are not reused.
        What is open gets its next tokens from the policy that is left.
        """
        mine = batches.c.policy == self.policy
        undone = sa.and_(mine, batches.c.state == BatchState.COMMITTED, batches.c.train_step > train_step)
        lost = (policies.c.name == self.policy, policies.c.train_step > train_step)
        with self._database.write() as connection:
            ids = list(connection.execute(sa.select(batches.c.id).where(undone)).scalars())
            self._return_groups(connection, ids)
            connection.execute(sa.update(batches).where(undone).values(state=BatchState.RELEASED))
            connection.execute(sa.update(policies).where(*lost).values(rolled_back=True))
            self._lower_open_groups(connection, self._latest_policy(connection).version)
            if ids:  # what another trainer is training starts from what is undone
                self._release(connection, sa.and_(mine, CLAIMED))
                self._event(connection, "rolled_back", to_train_step=train_step, train_steps=len(ids))
        self.doorbells.ring("engine", "manager")
        return len(ids)

    def _release_batch(self, connection: Connection, batch: Batch) -> bool:
        """Return whether the batch was still held."""
        return bool(self._release(connection, _held(batch)))

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

    def _lower_open_groups(self, connection: Connection, version: int) -> None:
        """The oldest version of an open group stays a lower bound of its tokens."""
        younger = (groups.c.state == GroupState.OPEN, groups.c.policy == self.policy, groups.c.oldest_version > version)
        connection.execute(sa.update(groups).where(*younger).values(oldest_version=version))

    def _train_step(self, connection: Connection) -> int:
        committed = (batches.c.policy == self.policy, batches.c.state == BatchState.COMMITTED)
        return connection.execute(sa.select(sa.func.max(batches.c.train_step)).where(*committed)).scalar() or 0


def _is_strange(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _held(batch: Batch) -> sa.ColumnElement[bool]:
    return sa.and_(
        batches.c.id == batch.batch_id, batches.c.attempt == batch.attempt, batches.c.state == BatchState.CLAIMED
    )


def _lost(batch: Batch) -> LeaseLostError:
    return LeaseLostError(f"batch {batch.batch_id} (train step {batch.train_step}) no longer holds its lease")
