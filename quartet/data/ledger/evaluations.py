"""Held-out evaluations: their groups share a tag, are never trained, and take no admission slot."""

from collections.abc import Iterable

import sqlalchemy as sa

from quartet.data.ledger.groups import Groups
from quartet.data.ledger.policies import Policies
from quartet.data.schema import evaluations, groups, rollouts, trajectories
from quartet.errors import LedgerError
from quartet.types import RolloutPlan, RolloutState


class Evaluations(Groups, Policies):
    def admit_evaluation(self, tag: str, plans: Iterable[RolloutPlan]) -> int:
        """Queue a whole evaluation in one transaction; returns the policy version that is the newest now.

        Raises `LedgerError` when the tag was used before.
        """
        with self._database.write() as connection:
            if connection.execute(sa.select(evaluations.c.tag).where(evaluations.c.tag == tag)).first():
                raise LedgerError(f"evaluation {tag!r} was admitted before", "give it another tag")
            version = self._latest_policy(connection).version
            connection.execute(sa.insert(evaluations).values(tag=tag, version=version, created_at=self._clock()))
            for plan in plans:
                self._admit(connection, plan)
        self.doorbells.ring("worker")
        return version

    def finish_evaluation(self, tag: str) -> None:
        """Its result has been recorded."""
        with self._database.write() as connection:
            done = sa.update(evaluations).where(evaluations.c.tag == tag)
            connection.execute(done.values(finished_at=self._clock()))

    def evaluations_admitted(self) -> dict[str, int]:
        """Policy version by tag, of every evaluation so far."""
        return self._evaluations(sa.true())

    def evaluation_admitted(self, tag: str) -> bool:
        """Whether the tag was used."""
        return tag in self.evaluations_admitted()

    def evaluations_running(self) -> dict[str, int]:
        """Policy version by tag, of the evaluations whose result has not been recorded."""
        return self._evaluations(evaluations.c.finished_at.is_(None))

    def evaluation_open(self, tag: str) -> int:
        """Rollouts of an evaluation that have not ended."""
        query = (
            sa.select(sa.func.count())
            .select_from(rollouts.join(groups))
            .where(groups.c.tag == tag, rollouts.c.state != RolloutState.FINISHED)
        )
        with self._database.read() as connection:
            return connection.execute(query).scalar_one()

    def evaluation_results(self, tag: str) -> dict[str, tuple[int, int]]:
        """(successes, episodes) by task family. Infrastructure failures are no episodes."""
        query = (
            sa.select(trajectories.c.family, sa.func.sum(sa.cast(trajectories.c.success, sa.Integer)), sa.func.count())
            .join(groups, trajectories.c.group_id == groups.c.id)
            .where(groups.c.tag == tag, trajectories.c.counted)
            .group_by(trajectories.c.family)
            .order_by(trajectories.c.family)
        )
        with self._database.read() as connection:
            return {family: (successes, episodes) for family, successes, episodes in connection.execute(query)}

    def _evaluations(self, condition: sa.ColumnElement[bool]) -> dict[str, int]:
        with self._database.read() as connection:
            rows = connection.execute(sa.select(evaluations).where(condition).order_by(evaluations.c.created_at))
            return {row.tag: row.version for row in rows}
