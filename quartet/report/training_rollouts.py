"""Number of training rollouts that have ended."""

import threading

import sqlalchemy as sa

from quartet.ledger import Ledger
from quartet.ledger.schema import TrajectoryKind, trajectories
from quartet.types import Purpose

_ENDED_TRAINING = (
    trajectories.c.purpose.not_in([purpose for purpose in Purpose if purpose is not Purpose.TRAIN]),
    trajectories.c.kind.not_in([kind for kind in TrajectoryKind if kind is not TrajectoryKind.FINAL]),
)
"""Conditions on rows of ended training rollouts. They are written as exclusions of all other values, because for
equalities SQLite would read an index over the whole run."""


class TrainingRollouts:
    """Counter of the training rollouts that have ended (`labels.TRAINING_ROLLOUTS`). It may be used from several
    threads.

    Each call of `count` reads only the records that were added since the previous call.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._lock = ledger, threading.Lock()
        self._counted, self._seen_id = 0, 0

    def count(self) -> int:
        """Return the number. A rollout with several trajectories counts once, since they are stored together."""
        with self._lock, self._ledger.read() as connection:
            newest_id = connection.execute(sa.select(sa.func.max(trajectories.c.id))).scalar() or 0
            unseen = trajectories.c.id.between(self._seen_id + 1, newest_id)
            ended = sa.select(trajectories.c.rollout_id).distinct().where(unseen, *_ENDED_TRAINING).subquery()
            self._counted += connection.execute(sa.select(sa.func.count()).select_from(ended)).scalar_one()
            self._seen_id = newest_id
            return self._counted
