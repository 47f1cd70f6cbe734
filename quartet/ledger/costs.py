"""The cost of training up to a time, and the times of the held-out evaluations."""

import sqlalchemy as sa

from quartet.ledger.part import LedgerPart
from quartet.ledger.recent import IS_TRAINING
from quartet.ledger.rows import Cost, EvaluationTime
from quartet.ledger.schema import IS_FINAL, evaluations, groups, trajectories
from quartet.types import Purpose

_TRAINING = (IS_FINAL, trajectories.c.purpose == Purpose.TRAIN)


class Costs(LedgerPart):
    def cost_until(self, moment: float) -> Cost:
        """Return the cost of all training rollouts stored by `moment` (Unix seconds), in milliseconds per 10,000."""
        sums = (sa.func.coalesce(sa.func.sum(trajectories.c[name]), 0) for name in ("prompt_tokens", "response_tokens"))
        counted = sa.func.count(sa.distinct(trajectories.c.rollout_id))  # several parts are one rollout
        query = sa.select(counted, *sums).where(*_TRAINING, trajectories.c.created_at <= moment)
        with self._database.read() as connection:
            rollouts, prompt_tokens, response_tokens = tuple(connection.execute(query).one())
        return Cost(rollouts=rollouts, prompt_tokens=prompt_tokens, response_tokens=response_tokens)

    def training_began(self) -> float | None:
        """Return the time of the first training group's admission in Unix seconds; None before that."""
        first = sa.select(groups.c.created_at).where(IS_TRAINING).order_by(groups.c.id).limit(1)
        with self._database.read() as connection:
            return connection.execute(first).scalar()

    def evaluation_times(self) -> list[EvaluationTime]:
        """Return all admitted evaluations, oldest first."""
        query = sa.select(evaluations.c.tag, evaluations.c.version, evaluations.c.created_at)
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(evaluations.c.created_at)).all()
        return [EvaluationTime(tag=row.tag, version=row.version, created_at=row.created_at) for row in rows]
