"""Tasks and families whose rollouts fail again and again because of the environment: counts, and quarantine.

A group fails if every rollout of it used up its attempts with an error of the environment or its reward, or with the
death of its worker. Groups in a row are counted for their task and for their family.
"""

from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.ledger.run_database import RunDatabase
from quartet.ledger.schema import rollouts, trajectories
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

    def observe(self, group_id: int, task: Task, limits: Mapping[str, int]) -> list[str]:
        """Count a closed group without countable rollouts, and quarantine its subjects in `limits` (subject -> number
        of failed groups in a row) that have reached their limit. Return these.

        A group that did not fail because of the environment changes nothing.
        """
        with self._db.write() as connection:
            error = _error_of(connection, group_id)
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


def _error_of(connection: Connection, group_id: int) -> str | None:
    """Return the last error of a group that failed because of the environment; None for any other group."""
    of_group = sa.select(rollouts.c.state, rollouts.c.status, rollouts.c.failures).where(
        rollouts.c.group_id == group_id
    )
    rows = connection.execute(of_group).all()
    failed = [
        row.status in _OF_ENVIRONMENT or (row.status == Status.CANCELLED and row.failures > 0)
        for row in rows
        if row.state == RolloutState.FINISHED
    ]
    if not failed or not all(failed):
        return None
    newest = sa.select(trajectories.c.error).where(
        trajectories.c.group_id == group_id, trajectories.c.status.in_(_OF_ENVIRONMENT)
    )
    error = connection.execute(newest.order_by(trajectories.c.id.desc()).limit(1)).scalar()
    return error or WORKER_DIED
