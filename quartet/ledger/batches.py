"""The batch state machine: claimed -> committed, or claimed -> released. A roll-back releases committed batches.

When a batch is claimed, one row of the table `uses` is written for each of its members. A row is voided when its batch
is released. Of the rows that are not voided, a database index allows one of role `fresh` per trajectory, so a
trajectory is trained once in its own group.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.errors import LedgerError
from quartet.ledger.checkpoints import CheckpointProgress, progress_key
from quartet.ledger.claims import (
    FRESH_OF_BATCH,
    GROUPS_OF_BATCH,
    REPLAYED_OF_BATCH,
    BatchClaim,
    count_due,
    lease_groups,
    next_train_step,
    waiting_groups,
)
from quartet.ledger.members import drop_groups, drop_too_small, load_members, mark_damaged, task_of
from quartet.ledger.policy_rows import ancestry_of, insert_policy, newest
from quartet.ledger.quarantine import count_failure, quarantine, quarantined_groups
from quartet.ledger.releases import CLAIMED, batch_lost, is_held, release, return_groups
from quartet.ledger.run_database import RunDatabase
from quartet.ledger.schema import batches, groups, policies
from quartet.ledger.train_steps import committed_step, step_limit_key
from quartet.ledger.values import write_value
from quartet.types import Batch, BatchState, Group, GroupState, OnLate, Policy


class Batches:
    """Batches of the policy: claimed by its trainer, committed or released; and the train steps that they make."""

    def __init__(self, db: RunDatabase) -> None:
        self._db = db

    def claim(
        self,
        trainer: str,
        groups: int,
        max_lag: int,
        on_late: OnLate,
        lease_seconds: float,
        *,
        after: Batch | None = None,
    ) -> Batch | None:
        """Lease the policy's oldest `groups` trainable groups and load them.

        A batch that this trainer held is released first: the trainer was restarted. Groups with tokens over `max_lag`
        are dropped: with `on_late` "drop" if any token is, otherwise if all are. Members with damaged blobs are marked,
        and the claim is repeated without them. `after` is the batch whose policy this trainer is writing: the claimed
        batch starts from the version that it will get, and can be committed only after it. Returns None in these cases:

        - There are fewer trainable groups, or `on_late` is "wait" and other groups have to end first (`due_groups`).
        - Another trainer holds a batch of the policy: only one trainer trains it at a time.
        - The last train step that `limit_train_steps` allows is committed, or is that of `after`.

        Raises `LeaseLostError` if `after` is no longer held.
        """
        while claim := self.lease(trainer, groups, max_lag, on_late, lease_seconds, after=after):
            if batch := self.load(claim):
                return batch
        return None

    def lease(
        self,
        trainer: str,
        groups: int,
        max_lag: int,
        on_late: OnLate,
        lease_seconds: float,
        *,
        after: Batch | None = None,
    ) -> BatchClaim | None:
        """Run the transaction of `claim`, without reading trajectories."""
        db = self._db
        with db.write() as connection:
            step = next_train_step(db, connection, trainer, after)
            if step is None:
                return None
            start = step.start_version
            waiting = waiting_groups(connection, db.policy, start)
            late = {group.group_id for group in waiting if group.exceeds(max_lag, on_late)}
            if late:
                drop_groups(connection, sorted(late), "over_lag")
            in_time = [group for group in waiting if group.group_id not in late]
            others_first = on_late == "wait" and count_due(connection, db.policy, in_time, groups, max_lag, start)
            chosen = [] if others_first or len(in_time) < groups else [group.group_id for group in in_time[:groups]]
            claim = lease_groups(db, connection, trainer, step, chosen, lease_seconds) if chosen else None
        if late:
            db.notifier.notify("manager")
        return claim

    def load(self, claim: BatchClaim) -> Batch | None:
        """Read the trajectories of a claim. If one is damaged, mark it, release the batch and return None."""
        of_batch = {"batch_id": claim.batch_id}
        members: dict[int, list[Any]] = {}
        with self._db.read() as connection:
            for row in connection.execute(FRESH_OF_BATCH, of_batch):
                members.setdefault(row.group_id, []).append(row)
            for row in connection.execute(REPLAYED_OF_BATCH, of_batch):
                if row.joined_group in members:  # else all of its own members are damaged, and the claim is given up
                    members[row.joined_group].append(row)
            rows = connection.execute(GROUPS_OF_BATCH, of_batch).all()
            ancestry = ancestry_of(connection, self._db.policy)
        found, damaged = load_members(self._db.store, [member for row in rows for member in members.get(row.id, ())])
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
                    policy=self._db.policy,
                )
                for row in rows
            ],
        )

    def renew(self, batch: Batch, lease_seconds: float) -> None:
        """Extend the lease of a batch. Raises `LeaseLostError` if it is no longer held."""
        with self._db.write() as connection:
            deadline = self._db.now(connection) + lease_seconds
            held = connection.execute(sa.update(batches).where(is_held(batch)).values(deadline=deadline)).rowcount
        if not held:
            raise batch_lost(batch)

    def commit(
        self, batch: Batch, policy_path: str, metrics: dict[str, Any], checkpoints: CheckpointProgress | None = None
    ) -> Policy:
        """In one transaction, commit a trained batch, its policy (already on disk) and the trainer's progress with
        checkpoints.

        Non-finite metrics are stored as null, because JSON cannot represent them. Raises `LeaseLostError` if the lease
        was lost; then nothing is committed and an event is recorded. Raises `LedgerError` if the batch before it is not
        committed (`claim` with `after`).
        """
        db = self._db
        storable = {name: None if _is_strange(value) else value for name, value in metrics.items()}
        committed = {"state": BatchState.COMMITTED, "committed_at": db.clock(), "metrics": storable}
        policy = None
        with db.write() as connection:
            if connection.execute(sa.update(batches).where(is_held(batch)).values(committed)).rowcount:
                if newest(connection, db.policy).version != batch.start_version:
                    raise LedgerError(
                        f"batch {batch.batch_id} starts from version {batch.start_version}, which is not committed",
                        "commit the batches of a policy in the order in which they were claimed",
                    )
                trained = sa.update(groups).where(groups.c.batch_id == batch.batch_id)
                connection.execute(trained.values(state=GroupState.TRAINED))
                policy = insert_policy(db, connection, policy_path, batch.train_step)
                if checkpoints is not None:
                    write_value(connection, progress_key(db.policy), msgspec.to_builtins(checkpoints))
            else:
                db.record(connection, "batch_superseded", batch_id=batch.batch_id, train_step=batch.train_step)
        if policy is None:
            raise batch_lost(batch)
        db.notifier.notify("engine", "manager")
        return policy

    def record_checkpoints(self, checkpoints: CheckpointProgress, version: int) -> bool:
        """Record a trainer's progress with checkpoints outside of a commit; return whether it was recorded.

        It is not recorded if the policy has a newer version than `version`, which another trainer has committed.
        """
        with self._db.write() as connection:
            is_newest = newest(connection, self._db.policy).version == version
            if is_newest:
                write_value(connection, progress_key(self._db.policy), msgspec.to_builtins(checkpoints))
        return is_newest

    def release(self, batch: Batch) -> None:
        """Release a batch untrained: its groups become trainable again. A batch that is already lost is ignored."""
        with self._db.write() as connection:
            release(self._db, connection, is_held(batch))

    def expire(self) -> int:
        """Release the batches whose lease expired; return their number."""
        with self._db.read() as connection:
            overdue = sa.and_(CLAIMED, batches.c.deadline < self._db.now(connection))
            if not connection.execute(sa.select(batches.c.id).where(overdue)).first():
                return 0
        with self._db.write() as connection:
            released = release(self._db, connection, overdue)
        self._db.notifier.notify("trainer")
        return released

    def fail(self, batch: Batch, error: str) -> int:
        """Release a batch whose train step failed, and count the failure at each of its groups.

        Returns the largest failure count among these groups. If the batch is already lost, its groups may be another
        trainer's: then nothing is counted and 0 is returned.
        """
        with self._db.write() as connection:
            if not release(self._db, connection, is_held(batch)):
                return 0
            return count_failure(self._db, connection, batch, error)

    def quarantine(self, batch: Batch, group_ids: Sequence[int], error: str) -> int:
        """Drop these groups of a failed batch permanently, and reset the failure counts of the batch's other groups.

        Groups that another trainer has claimed or trained since the batch failed are not dropped. Stored successes that
        joined a dropped group are removed from the pool, because they might make the next group fail too. Returns the
        number of consecutive batches that lost groups this way without a committed train step between them.
        """
        with self._db.write() as connection:
            streak = quarantine(self._db, connection, batch, group_ids, error)
        self._db.notifier.notify("manager")
        return streak

    def quarantined_groups(self) -> int:
        """Return the number of quarantined groups of this run."""
        return quarantined_groups(self._db)

    def due_groups(self, groups: int, max_lag: int) -> int:
        """Return the number of unfinished groups that the next train step waits for (`on_late` "wait").

        The number is 0 if there are fewer than `groups` trainable groups.
        """
        policy = self._db.policy
        with self._db.read() as connection:
            start = newest(connection, policy).version
            return count_due(connection, policy, waiting_groups(connection, policy, start), groups, max_lag, start)

    def train_step(self) -> int:
        """Return the number of the policy's last committed train step; 0 before the first."""
        with self._db.read() as connection:
            return committed_step(connection, self._db.policy)

    def least_train_step(self) -> int:
        """Return the largest train step that every trained policy has reached."""
        with self._db.read() as connection:
            return min(committed_step(connection, policy) for policy in self._db.trained)

    def limit_train_steps(self, last: int | None) -> None:
        """Refuse claims beyond train step `last`, for every policy; None removes the limit."""
        for policy in self._db.trained:
            self._db.set_value(step_limit_key(policy), last)

    def stop_claims(self) -> bool:
        """Refuse further claims, so that the batches in training are the last ones; return True if none is in
        training."""
        with self._db.write() as connection:
            claimed = Counter(connection.execute(sa.select(batches.c.policy).where(CLAIMED)).scalars())
            for policy in self._db.trained:
                last = committed_step(connection, policy) + claimed[policy]
                write_value(connection, step_limit_key(policy), last)
        return not claimed

    def roll_back(self, train_step: int) -> int:
        """Undo the policy's train steps after `train_step`, because their optimizer state is lost; return their number.

        Their groups become trainable again and their policies are marked rolled back. Version numbers are not reused.
        Open groups sample their next tokens from the newest remaining version.
        """
        db = self._db
        mine = batches.c.policy == db.policy
        undone = sa.and_(mine, batches.c.state == BatchState.COMMITTED, batches.c.train_step > train_step)
        lost = (policies.c.name == db.policy, policies.c.train_step > train_step)
        with db.write() as connection:
            ids = list(connection.execute(sa.select(batches.c.id).where(undone)).scalars())
            return_groups(connection, ids)
            connection.execute(sa.update(batches).where(undone).values(state=BatchState.RELEASED))
            connection.execute(sa.update(policies).where(*lost).values(rolled_back=True))
            _lower_open_groups(connection, db.policy)
            if ids:  # a batch that another trainer holds starts from an undone policy
                release(db, connection, sa.and_(mine, CLAIMED))
                db.record(connection, "rolled_back", to_train_step=train_step, train_steps=len(ids))
                drop_too_small(connection)  # members may have been damaged while their groups were trained
        db.notifier.notify("engine", "manager")
        return len(ids)

    def _give_up(self, claim: BatchClaim, damaged: dict[int, str]) -> None:
        with self._db.write() as connection:
            mark_damaged(self._db, connection, damaged)
            release(self._db, connection, batches.c.id == claim.batch_id)
            drop_too_small(connection)  # claimed groups are not checked by `mark_damaged`
        self._db.notifier.notify("manager")


def _lower_open_groups(connection: Connection, policy: str) -> None:
    """Lower the recorded oldest version of open groups to the newest version, so that it remains a lower bound for the
    versions of their tokens."""
    version = newest(connection, policy).version
    younger = (groups.c.state == GroupState.OPEN, groups.c.policy == policy, groups.c.oldest_version > version)
    connection.execute(sa.update(groups).where(*younger).values(oldest_version=version))


def _is_strange(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
