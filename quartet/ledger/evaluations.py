"""Held-out evaluations. The groups of an evaluation share a tag. They are not trained and do not count towards the
limit of admission."""

from collections.abc import Iterable
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.errors import LedgerError
from quartet.ledger.cancelling import drop_groups
from quartet.ledger.group_rows import IS_OPEN, admit_group
from quartet.ledger.policy_rows import newest
from quartet.ledger.results import FamilyResult
from quartet.ledger.run_database import RunDatabase
from quartet.ledger.schema import IS_FINAL, evaluations, groups, rollouts, trajectories
from quartet.types import GroupState, RolloutPlan, RolloutState, Status

WITH_RESULT = [status for status in Status if status.countable or status is Status.TRUNCATED_TIME]
"""Statuses of rollouts that have a result, as in `read_results`."""
OUTDATED = "outdated"
"""Drop reason of an open group of an evaluation whose policy is no longer the newest one."""


class EpisodeRewards(NamedTuple):
    """Rewards of one episode of an evaluation."""

    family: str
    by_policy: dict[str, float]


class Evaluations:
    """Evaluations of the run by their tags."""

    def __init__(self, db: RunDatabase) -> None:
        self._db = db

    def admit(self, tag: str, plans: Iterable[RolloutPlan]) -> int:
        """Queue a whole evaluation in one transaction; return the newest policy version at that time.

        Raises `LedgerError` if the tag was used before.
        """
        db = self._db
        with db.write() as connection:
            if connection.execute(sa.select(evaluations.c.tag).where(evaluations.c.tag == tag)).first():
                raise LedgerError(f"evaluation {tag!r} was admitted before", "give it another tag")
            version: int = newest(connection, db.policy).version
            connection.execute(sa.insert(evaluations).values(tag=tag, version=version, created_at=db.clock()))
            for plan in plans:
                admit_group(db, connection, plan)
        db.notifier.notify("worker")
        return version

    def finish(self, tag: str) -> None:
        """Mark an evaluation as finished: its result has been recorded."""
        with self._db.write() as connection:
            done = sa.update(evaluations).where(evaluations.c.tag == tag)
            connection.execute(done.values(finished_at=self._db.clock()))

    def cancel(self, tags: Iterable[str]) -> int:
        """Drop the groups of these evaluations that have unfinished rollouts, reason `OUTDATED`; return their number.

        The rollouts are cancelled, so the evaluations are cut off (`was_cut_off`).
        """
        unfinished = (IS_OPEN, groups.c.tag.in_(list(tags)), groups.c.unfinished > 0)
        return drop_groups(self._db, *unfinished, reason=OUTDATED)

    def admitted(self) -> dict[str, int]:
        """Return the policy version of each evaluation, by tag."""
        return self._versions(sa.true())

    def was_admitted(self, tag: str) -> bool:
        """Return whether an evaluation with this tag was admitted."""
        return tag in self.admitted()

    def running(self) -> dict[str, int]:
        """Return the policy version of each evaluation whose result is not recorded yet, by tag."""
        return self._versions(evaluations.c.finished_at.is_(None))

    def unfinished(self, tag: str) -> int:
        """Return the number of unfinished rollouts of an evaluation."""
        query = (
            sa.select(sa.func.count())
            .select_from(rollouts.join(groups))
            .where(groups.c.tag == tag, rollouts.c.state != RolloutState.FINISHED)
        )
        with self._db.read() as connection:
            return connection.execute(query).scalar_one()

    def has_ended(self, tag: str) -> bool:
        """Return whether all groups of an evaluation are closed. A group closes after its rollouts have finished."""
        # A range of one state, in the order of an index: of a constant state PostgreSQL would read all groups by id.
        is_open = groups.c.state.between(GroupState.OPEN, GroupState.OPEN)
        still_open = sa.select(groups.c.id).where(groups.c.tag == tag, is_open).order_by(groups.c.state, groups.c.id)
        with self._db.read() as connection:
            return connection.execute(still_open.limit(1)).first() is None

    def was_cut_off(self, tag: str) -> bool:
        """Return whether rollouts of an evaluation were cancelled, by the end of training or by `cancel`. The finished
        ones are then no result of the policy: short episodes are finished first."""
        with self._db.read() as connection:
            return bool(connection.execute(sa.select(cut_off(tag))).scalar())

    def is_whole(self, tag: str) -> bool:
        """Return whether an evaluation was admitted and all its rollouts have finished, none of them cut off."""
        return self.was_admitted(tag) and not self.unfinished(tag) and not self.was_cut_off(tag)

    def results(self, tag: str, *, of_all: bool = False) -> dict[str, FamilyResult]:
        """Return the results of the finished rollouts by task family. With `of_all`, unfinished rollouts are uncounted
        ones."""
        with self._db.read() as connection:
            return read_results(connection, tag, of_all=of_all)

    def rewards(self, tag: str) -> list[EpisodeRewards]:
        """Return the rewards of all policies in each finished rollout that has a result, oldest rollout first."""
        query = (
            sa.select(rollouts.c.id, groups.c.family, trajectories.c.policy, trajectories.c.reward)
            .select_from(rollouts.join(groups, rollouts.c.group_id == groups.c.id))
            .join(trajectories, trajectories.c.rollout_id == rollouts.c.id)
            .where(groups.c.tag == tag, IS_FINAL, trajectories.c.status.in_(WITH_RESULT))
            .order_by(rollouts.c.id)
        )
        episodes: dict[int, EpisodeRewards] = {}
        with self._db.read() as connection:
            for rollout_id, family, policy, reward in connection.execute(query):
                episodes.setdefault(rollout_id, EpisodeRewards(family, {})).by_policy[policy] = reward
        return list(episodes.values())

    def seeds(self, env: str, tag_prefix: str) -> set[int]:
        """Return the seeds of all evaluations in an environment whose tag starts with `tag_prefix`."""
        query = sa.select(groups.c.task_seed).distinct()
        query = query.where(groups.c.env == env, groups.c.tag.startswith(tag_prefix, autoescape=True))
        with self._db.read() as connection:
            return set(connection.execute(query).scalars())

    def _versions(self, condition: sa.ColumnElement[bool]) -> dict[str, int]:
        with self._db.read() as connection:
            rows = connection.execute(sa.select(evaluations).where(condition).order_by(evaluations.c.created_at))
            return {row.tag: row.version for row in rows}


_OF_THE_GROUP = trajectories.c.policy == groups.c.policy
"""Condition that a trajectory belongs to the policy of its group, not to another policy in the rollout."""


def cut_off(tag: str | sa.ColumnElement[str]) -> sa.Exists:
    """Return the condition that rollouts of an evaluation were cancelled with their groups.

    In a closed group, a cancelled rollout is one whose workers were lost: an uncounted result.
    """
    dropped = (groups.c.tag == tag, groups.c.state == GroupState.DROPPED)
    return sa.exists().where(*dropped, rollouts.c.group_id == groups.c.id, rollouts.c.status == Status.CANCELLED)


def read_results(connection: Connection, tag: str, *, of_all: bool = False) -> dict[str, FamilyResult]:
    """Return the results of an evaluation's finished rollouts by task family. With `of_all`, unfinished rollouts are
    uncounted ones.

    A timeout is a failed episode; otherwise slow failures would raise a policy's success rate. Infrastructure failures
    do not depend on the policy, so they are counted separately (`uncounted`).
    """
    solved = sa.case((sa.and_(trajectories.c.counted, trajectories.c.success), 1), else_=0)
    has_result = sa.or_(trajectories.c.counted, trajectories.c.status == Status.TRUNCATED_TIME)
    counts = (solved, sa.case((has_result, 1), else_=0), sa.case((has_result, 0), else_=1))
    query = (
        sa.select(groups.c.family, *(sa.func.sum(count) for count in counts))
        .select_from(rollouts.join(groups, rollouts.c.group_id == groups.c.id))
        .outerjoin(trajectories, sa.and_(trajectories.c.rollout_id == rollouts.c.id, IS_FINAL, _OF_THE_GROUP))
        .where(groups.c.tag == tag, sa.true() if of_all else rollouts.c.state == RolloutState.FINISHED)
        .group_by(groups.c.family)
        .order_by(groups.c.family)
    )
    return {family: FamilyResult(*map(int, counts)) for family, *counts in connection.execute(query)}
