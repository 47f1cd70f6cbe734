"""Groups that cannot be trained: how often a train step failed with each, and which are taken out for good."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.ledger.batches import Batches
from quartet.ledger.members import WAITING
from quartet.ledger.schema import groups, pool, replays, trajectories
from quartet.types import Batch

QUARANTINED = "quarantined"
"""Reason of a group whose train step failed repeatedly."""
_STREAK, _TOTAL = "quarantined_in_a_row", "quarantined_groups"
"""Their names in the ledger."""
_NONE = {"train_step": 0, "batches": 0}


class Quarantine(Batches):
    def fail_batch(self, batch: Batch, error: str) -> int:
        """Release a batch whose train step failed, and count the failure at each of its groups.

        Returns how often the train steps of one of them have failed by now; 0, and nothing is counted, when the batch
        is already lost: its groups may be another trainer's.
        """
        ids = [group.group_id for group in batch.groups]
        with self._database.write() as connection:
            if not self._release_batch(connection, batch):
                return 0
            mine = groups.c.id.in_(ids)
            connection.execute(sa.update(groups).where(mine).values(failures=groups.c.failures + 1))
            self._event(
                connection, "train_step_failed", train_step=batch.train_step, batch_id=batch.batch_id, error=error
            )
            return connection.execute(sa.select(sa.func.max(groups.c.failures)).where(mine)).scalar_one()

    def quarantine(self, batch: Batch, group_ids: Sequence[int], error: str) -> int:
        """Drop those groups of a failed batch for good, and forget the failures of its others. A group that another
        trainer has claimed or trained meanwhile is left alone.

        The stored successes that joined them leave the pool, or they would spoil the next group that they join.
        Returns how many batches in a row lost groups so, without a train step committed between them.
        """
        ids = [group.group_id for group in batch.groups]
        with self._database.write() as connection:
            waiting = set(connection.execute(sa.select(groups.c.id).where(*WAITING, groups.c.id.in_(ids))).scalars())
            bad = [group for group in batch.groups if group.group_id in waiting.intersection(group_ids)]
            self._drop(connection, [group.group_id for group in bad], QUARANTINED)
            connection.execute(sa.update(groups).where(groups.c.id.in_(ids)).values(failures=0))
            self._take_from_pool(connection, [group.group_id for group in bad])
            self._set_value(connection, _TOTAL, self._value(connection, _TOTAL, 0) + len(bad))
            self._event(
                connection,
                "batch_quarantined",
                train_step=batch.train_step,
                batch_id=batch.batch_id,
                groups=[group.group_id for group in bad],
                tasks=[group.task.key for group in bad],
                of_groups=len(ids),
                error=error,
            )
            streak = self._count_streak(connection, batch.train_step)
        self.doorbells.ring("manager")
        return streak

    def clear_stop(self) -> None:
        """Forget an earlier stop, and the batches in a row too: what was wrong with them may have been mended."""
        super().clear_stop()
        for ledger in self.each():
            self.set_value(ledger._key(_STREAK), _NONE)

    def quarantined_groups(self) -> int:
        """How many groups of this run were quarantined."""
        return self.value(_TOTAL, 0)

    def _count_streak(self, connection: Connection, train_step: int) -> int:
        """A later train step than the last time means that one was committed meanwhile; a roll-back means nothing."""
        key = self._key(_STREAK)
        last: dict[str, int] = self._value(connection, key, _NONE)
        batches = 1 if train_step > last["train_step"] else last["batches"] + 1
        reached = max(train_step, last["train_step"])
        self._set_value(connection, key, {"train_step": reached, "batches": batches})
        return batches

    def _take_from_pool(self, connection: Connection, group_ids: list[int]) -> None:
        joined = sa.select(trajectories.c.rollout_id).join(replays, replays.c.trajectory_id == trajectories.c.id)
        joined = joined.where(replays.c.group_id.in_(group_ids))
        mine = (pool.c.policy == self.policy, pool.c.rollout_id.in_(joined))
        connection.execute(sa.update(pool).where(*mine).values(outdated=True))
