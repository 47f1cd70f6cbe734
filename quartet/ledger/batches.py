"""The batch state machine, claimed -> committed or claimed -> released, and its effect on groups and uses.

`claims.py` creates batches.

Every use of a trajectory is a row. A database index allows one live use of role `fresh` per trajectory.
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
"""Roles of a use: training in the rollout's own group, or in another group that it joined."""

CLAIMED = batches.c.state == BatchState.CLAIMED


class Batches(Members, Policies):
    def renew_batch(self, batch: Batch, lease_seconds: float) -> None:
        """Extend the lease of a batch. Raises `LeaseLostError` if it is no longer held."""
        with self._database.write() as connection:
            deadline = self._now(connection) + lease_seconds
            held = connection.execute(sa.update(batches).where(_held(batch)).values(deadline=deadline)).rowcount
        if not held:
            raise _lost(batch)

    def commit_batch(self, batch: Batch, policy_path: str, metrics: dict[str, Any]) -> Policy:
        """Commit a trained batch and its policy, which is already on disk, in one transaction.

        Non-finite metrics are stored as null, because JSON cannot represent them. Raises `LeaseLostError` if the lease
        was lost; then nothing is committed and an event is recorded.
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
        """Release a batch untrained: its groups become trainable again. A batch that is already lost is ignored."""
        with self._database.write() as connection:
            self._release_batch(connection, batch)

    def expire_batches(self) -> int:
        """Release the batches whose lease expired; return their number."""
        with self._database.read() as connection:
            overdue = sa.and_(CLAIMED, batches.c.deadline < self._now(connection))
            if not connection.execute(sa.select(batches.c.id).where(overdue)).first():
                return 0
        with self._database.write() as connection:
            released = self._release(connection, overdue)
        self.doorbells.ring("trainer")
        return released

    def train_step(self) -> int:
        """Return the number of the policy's last committed train step; 0 before the first."""
        with self._database.read() as connection:
            return self._train_step(connection)

    def least_train_step(self) -> int:
        """Return the largest train step that every trained policy has reached."""
        with self._database.read() as connection:
            return min(ledger._train_step(connection) for ledger in self.each())

    def limit_train_steps(self, last: int | None) -> None:
        """Refuse claims beyond train step `last`, for every policy; None removes the limit."""
        for ledger in self.each():
            self.set_value(ledger._key(LAST_TRAIN_STEP), last)

    def stop_claims(self) -> bool:
        """Refuse further claims, so that the batches in training are the last; return True if there are none."""
        with self._database.write() as connection:
            claimed = set(connection.execute(sa.select(batches.c.policy).where(CLAIMED)).scalars())
            for ledger in self.each():
                last = ledger._train_step(connection) + (ledger.policy in claimed)
                self._set_value(connection, ledger._key(LAST_TRAIN_STEP), last)
        return not claimed

    def roll_back(self, train_step: int) -> int:
        """Undo the policy's train steps after `train_step`, whose optimizer state is lost; return their number.

        Their groups become trainable again and their policies are marked rolled back. Version numbers are not reused.
        Open groups sample their next tokens from the remaining policy.
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
            if ids:  # a batch that another trainer holds starts from an undone policy
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
        """Lower the oldest version of open groups to `version`, so that it stays a lower bound of their tokens."""
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
