"""Queries on the newest rows, by key and index, so that the cost does not grow with the run."""

from collections import Counter
from itertools import takewhile
from typing import Any

import sqlalchemy as sa

from quartet.fault import same_error
from quartet.ledger.part import LedgerPart
from quartet.ledger.rows import RepeatedError, SinceCommit
from quartet.ledger.schema import batches, groups, rollouts, trajectories
from quartet.types import BatchState, GroupState, Purpose, RolloutState, Status

_JUDGED = (GroupState.TRAINABLE, GroupState.CLAIMED, GroupState.TRAINED, GroupState.DROPPED)
IS_TRAINING = groups.c.purpose.not_in([purpose for purpose in Purpose if purpose is not Purpose.TRAIN])
"""Condition for training groups, written as an exclusion: for an equality SQLite would choose an index that needs a
sort of all training groups."""

ATTEMPTS_PER_ERROR = 10
"""Number of attempts read per error to be counted."""
_OF_USER_CODE = (Status.ERROR_ENV, Status.ERROR_REWARD, Status.ERROR_AGENT)
_ERRORS_FORGOTTEN = "errors_forgotten"
"""Key of the newest trajectory id at the last `forget_errors`."""


class Recent(LedgerPart):
    def recent_statuses(self, n: int) -> dict[str, int]:
        """Return the number of the newest `n` attempts by status, retried and late ones included."""
        newest = sa.select(trajectories.c.status).where(trajectories.c.purpose != Purpose.DEMONSTRATION)
        return self._counted(newest.order_by(trajectories.c.id.desc()).limit(n))

    def identical_errors(self, limit: int) -> RepeatedError | None:
        """Return the error that consecutive newest rollouts failed with; None if the newest did not fail.

        At most `limit` rollouts are counted. Only a countable rollout or another error ends the sequence. Failures of
        engines are ignored, and so are rollouts before the last `forget_errors`.
        """
        columns = [trajectories.c[name] for name in ("id", "rollout_id", "purpose", "status", "error", "blob")]
        newest = sa.select(*columns).order_by(trajectories.c.id.desc()).limit(ATTEMPTS_PER_ERROR * limit).subquery()
        with self._database.read() as connection:
            forgotten = self._value(connection, _ERRORS_FORGOTTEN, 0)
            judged = sa.select(newest).where(
                newest.c.id > forgotten,
                newest.c.purpose != Purpose.DEMONSTRATION,
                newest.c.status.in_([status for status in Status if status.countable or status in _OF_USER_CODE]),
            )
            rows = connection.execute(judged.order_by(newest.c.id.desc()).limit(limit)).all()
        same = list(takewhile(lambda row: row.error and same_error(row.error, rows[0].error), rows))
        if not same:
            return None
        last = same[0]
        return RepeatedError(
            count=len(same), error=last.error, status=last.status, rollout_id=last.rollout_id, blob=last.blob
        )

    def forget_errors(self) -> None:
        """Restart the count of identical errors, for a resume, possibly with fixed code."""
        with self._database.write() as connection:
            newest = connection.execute(sa.select(sa.func.max(trajectories.c.id))).scalar() or 0
            self._set_value(connection, _ERRORS_FORGOTTEN, newest)

    def rollouts_without_action(self, limit: int) -> tuple[int, str]:
        """Return the number of consecutive newest rollouts without a valid action, up to `limit`, and the blob of the
        newest of them."""
        columns = (trajectories.c.valid_actions, trajectories.c.blob)
        newest = sa.select(*columns).where(
            trajectories.c.counted, trajectories.c.turns > 0, trajectories.c.purpose != Purpose.DEMONSTRATION
        )
        with self._database.read() as connection:
            rows = connection.execute(newest.order_by(trajectories.c.id.desc()).limit(limit)).all()
        without = list(takewhile(lambda row: row.valid_actions == 0, rows))
        return len(without), without[0].blob if without else ""

    def recent_errors(self, n: int) -> dict[str, str]:
        """Return the newest error for each status among the newest `n` attempts."""
        newest = sa.select(trajectories.c.status, trajectories.c.error).order_by(trajectories.c.id.desc()).limit(n)
        with self._database.read() as connection:
            rows = connection.execute(newest).all()
        return {row.status: row.error for row in reversed(rows) if row.error}

    def recent_verdicts(self, n: int) -> dict[str, int]:
        """Count the judged groups among the newest `n` training groups by drop reason; "" for kept ones."""
        newest = sa.select(groups.c.state, groups.c.reason).where(IS_TRAINING, groups.c.policy == self.policy)
        page = newest.order_by(groups.c.id.desc()).limit(n).subquery()
        return self._counted(sa.select(page.c.reason).where(page.c.state.in_(_JUDGED)))

    def since_last_commit(self) -> SinceCommit:
        """Return the outcomes of the policy's groups and rollouts since its newest commit, or since the run's start."""
        committed = (batches.c.policy == self.policy, batches.c.state == BatchState.COMMITTED)
        commit = sa.select(sa.func.max(batches.c.committed_at)).where(*committed)
        with self._database.read() as connection:
            since = connection.execute(commit).scalar() or 0.0
            verdicts = sa.select(groups.c.reason).where(
                IS_TRAINING, groups.c.policy == self.policy, groups.c.state.in_(_JUDGED), groups.c.closed_at > since
            )
            ended = sa.select(trajectories.c.status).where(
                trajectories.c.purpose == Purpose.TRAIN,
                trajectories.c.policy == self.policy,
                trajectories.c.created_at > since,
            )
            return SinceCommit(
                verdicts=dict(Counter(connection.execute(verdicts).scalars())),
                statuses=dict(Counter(connection.execute(ended).scalars())),
            )

    def newest_train_metrics(self, train_steps: int) -> list[dict[str, Any]]:
        """Return the metrics of the newest committed batches, newest first."""
        mine = (batches.c.policy == self.policy, batches.c.state == BatchState.COMMITTED)
        newest = sa.select(batches.c.metrics).where(*mine)
        with self._database.read() as connection:
            rows = connection.execute(newest.order_by(batches.c.train_step.desc()).limit(train_steps)).scalars()
            return [metrics or {} for metrics in rows]

    def evaluation_counts(self, tags: list[str]) -> tuple[int, int]:
        """Return the numbers of finished rollouts and of all rollouts of these evaluations."""
        query = (
            sa.select(rollouts.c.state).join(groups, rollouts.c.group_id == groups.c.id).where(groups.c.tag.in_(tags))
        )
        states = self._counted(query)
        return states.get(RolloutState.FINISHED, 0), sum(states.values())

    def _counted(self, query: sa.Select[Any]) -> dict[str, int]:
        with self._database.read() as connection:
            return dict(Counter(connection.execute(query).scalars()))
