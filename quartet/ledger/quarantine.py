"""Quarantine of groups that cannot be trained: failure counts of train steps, and permanent drops."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.ledger.batches import Batches
from quartet.ledger.members import WAITING
from quartet.ledger.schema import groups, pool, replays, trajectories
from quartet.types import Batch

QUARANTINED = "quarantined"
"""Drop reason of a group whose train step failed repeatedly."""
_STREAK, _TOTAL = "quarantined_in_a_row", "quarantined_groups"
"""Keys of the two counts among the run's values."""
_NONE = {"train_step": 0, "batches": 0}


class Quarantine(Batches):
    def fail_batch(self, batch: Batch, error: str) -> int:
        """Release a batch whose train step failed, and count the failure at each of its groups.

        Returns the largest number of failures of one of these groups. If the batch is already lost, its groups may be
        another trainer's: then nothing is counted and 0 is returned.
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
        """Drop these groups of a failed batch permanently, and reset the failure counts of the batch's other groups.

        Groups that another trainer has claimed or trained meanwhile are not dropped. Stored successes that joined the
        dropped groups leave the pool, because they would spoil the next group that they join. Returns the number of
        consecutive batches that lost groups this way without a committed train step between them.
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
        """Clear an earlier stop request and the count of consecutive batches: their cause may have been fixed."""
        super().clear_stop()
        for ledger in self.each():
            self.set_value(ledger._key(_STREAK), _NONE)

    def quarantined_groups(self) -> int:
        """Return the number of quarantined groups of this run."""
        return self.value(_TOTAL, 0)

    def _count_streak(self, connection: Connection, train_step: int) -> int:
        """Count consecutive quarantined batches. A later train step than last time means a commit in between."""
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
