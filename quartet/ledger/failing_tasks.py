"""Tasks and families whose rollouts fail again and again because of the environment: counts, and quarantine.

A group fails if every rollout of it ended with an error of the environment or its reward, was cancelled after one, or
lost its last attempt with its lease. It does not count if an engine failed too. Leases may be lost because of workers
and engines as well: without an error of the environment, a group counts only if a later group has a countable rollout.
Groups in a row are counted for their task and for their family.
"""

from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.ledger.group_rows import COUNTED
from quartet.ledger.run_database import RunDatabase
from quartet.ledger.schema import IS_TRAINING, groups, rollouts, trajectories
from quartet.ledger.values import read_value, write_value
from quartet.types import RolloutState, Status, Task

_COUNTS, _QUARANTINED = "failed_groups_in_a_row", "quarantined_tasks"
_OF_ENVIRONMENT = (Status.ERROR_ENV, Status.ERROR_REWARD)
WORKER_DIED = "its workers died, or lost their leases"
"""Reason for rollouts that failed without a record."""


class FailingTasks:
    """The failing tasks of a run. A subject is a task's key, or a family as `ENV/FAMILY`."""

    def __init__(self, db: RunDatabase) -> None:
        self._db = db

    def quarantined(self) -> Mapping[str, str]:
        """Return the quarantined subjects with the last error of each."""
        return self._db.value(_QUARANTINED, {})

    def observe(self, group_id: int, task: Task, limits: Mapping[str, int], max_attempts: int) -> list[str]:
        """Count a closed group without countable rollouts, and quarantine its subjects in `limits` (subject -> number
        of failed groups in a row) that have reached their limit. Return these.

        `max_attempts` is the number of failed attempts after which a rollout ends. A group that did not fail because of
        the environment changes nothing.
        """
        with self._db.write() as connection:
            error = _error_of(connection, group_id, max_attempts)
            if error is None:
                return []
            counts: dict[str, int] = read_value(connection, _COUNTS, {})
            counts |= {subject: counts.get(subject, 0) + 1 for subject in limits}
            write_value(connection, _COUNTS, counts)
            known: dict[str, str] = read_value(connection, _QUARANTINED, {})
            new = [subject for subject, limit in limits.items() if counts[subject] >= limit and subject not in known]
            if new:
                write_value(connection, _QUARANTINED, known | dict.fromkeys(new, error))
            for subject in new:
                fields = {"subject": subject, "groups_in_a_row": counts[subject], "group_id": group_id, "error": error}
                self._db.record(connection, "task_quarantined", task=task.key, **fields)
            return new

    def succeeded(self, subjects: list[str]) -> None:
        """Restart the counts of subjects, of which a group had a countable rollout."""
        counts: dict[str, int] = self._db.value(_COUNTS, {})  # only the data manager writes it
        if counts.keys() & set(subjects):
            left = {subject: count for subject, count in counts.items() if subject not in subjects}
            self._db.set_value(_COUNTS, left)

    def forget(self) -> None:
        """End all quarantines and restart all counts, for a resume, possibly with a fixed environment."""
        with self._db.write() as connection:
            for key in (_COUNTS, _QUARANTINED):
                write_value(connection, key, {})


def _error_of(connection: Connection, group_id: int, max_attempts: int) -> str | None:
    """Return the last error of a group that failed because of the environment; None for any other group."""
    recorded = sa.select(trajectories.c.rollout_id, trajectories.c.status, trajectories.c.error)
    of_group = recorded.where(trajectories.c.group_id == group_id).order_by(trajectories.c.id)
    attempts = connection.execute(of_group).all()
    errors = [attempt for attempt in attempts if attempt.status in _OF_ENVIRONMENT]
    had_error = {attempt.rollout_id for attempt in errors}
    if any(attempt.status == Status.ERROR_ENGINE for attempt in attempts):
        return None
    ended = (rollouts.c.group_id == group_id, rollouts.c.state == RolloutState.FINISHED)
    rows = connection.execute(sa.select(rollouts.c.id, rollouts.c.status, rollouts.c.failures).where(*ended)).all()
    failed = [
        row.status in _OF_ENVIRONMENT
        or (row.status == Status.CANCELLED and (row.id in had_error or row.failures >= max_attempts))
        for row in rows
    ]
    if not failed or not all(failed):
        return None
    if not errors:
        return WORKER_DIED if _later_group_counts(connection, group_id) else None
    return errors[-1].error


def _later_group_counts(connection: Connection, group_id: int) -> bool:
    """Return whether a group admitted later has a countable rollout, so that workers and engines work."""
    counts = sa.exists().where(COUNTED)
    later = sa.select(groups.c.id).where(groups.c.id > group_id, IS_TRAINING, counts)
    return connection.execute(later.limit(1)).first() is not None
