"""What happened lately: the newest rows by key and index, so that the cost does not grow with the run."""

from collections import Counter
from typing import Any

import sqlalchemy as sa

from quartet.data.ledger.part import LedgerPart
from quartet.data.schema import batches, groups, rollouts, trajectories
from quartet.types import BatchState, GroupState, Purpose, RolloutState

_JUDGED = (GroupState.TRAINABLE, GroupState.CLAIMED, GroupState.TRAINED, GroupState.DROPPED)
IS_TRAINING = groups.c.purpose.not_in([purpose for purpose in Purpose if purpose is not Purpose.TRAIN])
"""Said by what it is not: asked for equality, SQLite would fetch all training groups by another index and sort them."""


class Recent(LedgerPart):
    def recent_statuses(self, n: int) -> dict[str, int]:
        """How the newest `n` attempts ended, retried and late ones included."""
        newest = sa.select(trajectories.c.status).where(trajectories.c.purpose != Purpose.DEMONSTRATION)
        return self._counted(newest.order_by(trajectories.c.id.desc()).limit(n))

    def recent_verdicts(self, n: int) -> dict[str, int]:
        """Of the newest `n` training groups, those that were judged: by the reason of their drop, "" for the kept."""
        newest = sa.select(groups.c.state, groups.c.reason).where(IS_TRAINING)
        page = newest.order_by(groups.c.id.desc()).limit(n).subquery()
        return self._counted(sa.select(page.c.reason).where(page.c.state.in_(_JUDGED)))

    def newest_train_metrics(self, train_steps: int) -> list[dict[str, Any]]:
        """Return what the trainer reported with its newest committed batches, newest first."""
        newest = sa.select(batches.c.metrics).where(batches.c.state == BatchState.COMMITTED)
        with self._database.read() as connection:
            rows = connection.execute(newest.order_by(batches.c.train_step.desc()).limit(train_steps)).scalars()
            return [metrics or {} for metrics in rows]

    def evaluation_counts(self, tags: list[str]) -> tuple[int, int]:
        """Rollouts of these evaluations that have ended, and all of them."""
        query = (
            sa.select(rollouts.c.state).join(groups, rollouts.c.group_id == groups.c.id).where(groups.c.tag.in_(tags))
        )
        states = self._counted(query)
        return states.get(RolloutState.FINISHED, 0), sum(states.values())

    def _counted(self, query: sa.Select[Any]) -> dict[str, int]:
        with self._database.read() as connection:
            return dict(Counter(connection.execute(query).scalars()))
