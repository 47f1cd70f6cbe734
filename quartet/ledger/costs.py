"""What training had cost by some moment, and the held-out evaluations on the way."""

import sqlalchemy as sa

from quartet.ledger.part import LedgerPart
from quartet.ledger.recent import IS_TRAINING
from quartet.ledger.rows import Cost, EvaluationTime
from quartet.ledger.schema import IS_FINAL, evaluations, groups, trajectories
from quartet.types import Purpose

_TRAINING = (IS_FINAL, trajectories.c.purpose == Purpose.TRAIN)


class Costs(LedgerPart):
    def cost_until(self, moment: float) -> Cost:
        """Of all training rollouts stored by `moment` (Unix seconds); takes milliseconds per ten thousand of them."""
        sums = (sa.func.coalesce(sa.func.sum(trajectories.c[name]), 0) for name in ("prompt_tokens", "response_tokens"))
        query = sa.select(sa.func.count(), *sums).where(*_TRAINING, trajectories.c.created_at <= moment)
        with self._database.read() as connection:
            rollouts, prompt_tokens, response_tokens = tuple(connection.execute(query).one())
        return Cost(rollouts=rollouts, prompt_tokens=prompt_tokens, response_tokens=response_tokens)

    def training_began(self) -> float | None:
        """When the first training group was admitted, in Unix seconds; None before that."""
        first = sa.select(groups.c.created_at).where(IS_TRAINING).order_by(groups.c.id).limit(1)
        with self._database.read() as connection:
            return connection.execute(first).scalar()

    def evaluation_times(self) -> list[EvaluationTime]:
        """All evaluations that were admitted, oldest first."""
        query = sa.select(evaluations.c.tag, evaluations.c.version, evaluations.c.created_at)
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(evaluations.c.created_at)).all()
        return [EvaluationTime(tag=row.tag, version=row.version, created_at=row.created_at) for row in rows]
