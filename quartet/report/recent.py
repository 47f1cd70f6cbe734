"""Results of the newest rollouts, groups and train steps. Queries use keys and indexes, so their time does not grow
with the run."""

from collections import Counter
from itertools import takewhile
from typing import Any

import sqlalchemy as sa
from msgspec import Struct

from quartet.ledger import Ledger
from quartet.ledger.groups import TRAINING_ENDED
from quartet.ledger.schema import IS_FINAL, IS_TRAINING, batches, groups, rollouts, trajectories
from quartet.ledger.statistics import JUDGED
from quartet.types import BatchState, Purpose, RolloutState, Status

_ROLLED_OUT = trajectories.c.purpose != Purpose.DEMONSTRATION


class Rates(Struct, frozen=True, kw_only=True):
    """Throughput over the last seconds, evaluation included."""

    rollouts_per_second: float
    prompt_tokens_per_second: float
    response_tokens_per_second: float
    trajectories_stored: int
    """Number of trajectories stored since the run began, including retried ones, late ones and demonstrations."""


def recent_rates(ledger: Ledger, window_seconds: float) -> Rates:
    """Return the throughput over the last `window_seconds`, or since the first rollout in this window."""
    now = ledger.db.clock()
    columns = (trajectories.c[name] for name in ("rollout_id", "created_at", "prompt_tokens", "response_tokens"))
    recent = sa.select(*columns).where(IS_FINAL, _ROLLED_OUT, trajectories.c.created_at > now - window_seconds)
    with ledger.read() as connection:
        rows = connection.execute(recent).all()
        stored = connection.execute(sa.select(sa.func.max(trajectories.c.id))).scalar() or 0
    seconds = max(now - min((row.created_at for row in rows), default=now), 1.0)
    return Rates(
        rollouts_per_second=len({row.rollout_id for row in rows}) / seconds,
        prompt_tokens_per_second=sum(row.prompt_tokens for row in rows) / seconds,
        response_tokens_per_second=sum(row.response_tokens for row in rows) / seconds,
        trajectories_stored=stored,
    )


def recent_success(ledger: Ledger, n: int) -> float | None:
    """Return the success rate of the newest `n` countable training rollouts; None before the first."""
    mine = sa.select(trajectories.c.success).where(
        trajectories.c.purpose == Purpose.TRAIN, trajectories.c.counted, trajectories.c.policy == ledger.policy
    )
    query = mine.order_by(trajectories.c.id.desc()).limit(n)
    with ledger.read() as connection:
        successes = connection.execute(query).scalars().all()
    return sum(successes) / len(successes) if successes else None


def recent_statuses(ledger: Ledger, n: int) -> dict[str, int]:
    """Count the newest `n` attempts by status, retried and late ones included."""
    newest = sa.select(trajectories.c.status).where(_ROLLED_OUT)
    return _counted(ledger, newest.order_by(trajectories.c.id.desc()).limit(n))


def recent_errors(ledger: Ledger, n: int) -> dict[str, str]:
    """Return the newest error for each status among the newest `n` attempts."""
    newest = sa.select(trajectories.c.status, trajectories.c.error).order_by(trajectories.c.id.desc()).limit(n)
    with ledger.read() as connection:
        rows = connection.execute(newest).all()
    return {row.status: row.error for row in reversed(rows) if row.error}


def newest_error(ledger: Ledger) -> str:
    """Return status and error of the newest attempt that failed; empty if none has."""
    kinds = [status for status in Status if not status.countable and status is not Status.CANCELLED]
    recorded = sa.select(trajectories.c.status, trajectories.c.error).order_by(trajectories.c.id.desc())
    newest = recorded.where(trajectories.c.status.in_(kinds), trajectories.c.error != "").limit(1)
    with ledger.read() as connection:
        row = connection.execute(newest).one_or_none()
    return f"{row.status}: {row.error}" if row else ""


def rollouts_without_action(ledger: Ledger, limit: int) -> tuple[int, str]:
    """Return the number of consecutive newest rollouts without a valid action, up to `limit`, and the blob of the
    newest of them."""
    columns = (trajectories.c.valid_actions, trajectories.c.blob)
    newest = sa.select(*columns).where(trajectories.c.counted, trajectories.c.turns > 0, _ROLLED_OUT)
    with ledger.read() as connection:
        rows = connection.execute(newest.order_by(trajectories.c.id.desc()).limit(limit)).all()
    without = list(takewhile(lambda row: row.valid_actions == 0, rows))
    return len(without), without[0].blob if without else ""


def recent_verdicts(ledger: Ledger, n: int) -> dict[str, int]:
    """Count the judged groups among the newest `n` training groups by drop reason; "" for kept ones.

    Groups that were open at the end of an earlier start of the run were not judged.
    """
    newest = sa.select(groups.c.state, groups.c.reason).where(IS_TRAINING, groups.c.policy == ledger.policy)
    page = newest.order_by(groups.c.id.desc()).limit(n).subquery()
    judged = (page.c.state.in_(JUDGED), page.c.reason != TRAINING_ENDED)
    return _counted(ledger, sa.select(page.c.reason).where(*judged))


def newest_train_metrics(ledger: Ledger, train_steps: int) -> list[dict[str, Any]]:
    """Return the metrics of the newest committed batches, newest first."""
    mine = (batches.c.policy == ledger.policy, batches.c.state == BatchState.COMMITTED)
    newest = sa.select(batches.c.metrics).where(*mine)
    with ledger.read() as connection:
        rows = connection.execute(newest.order_by(batches.c.train_step.desc()).limit(train_steps)).scalars()
        return [metrics or {} for metrics in rows]


def evaluation_counts(ledger: Ledger, tags: list[str]) -> tuple[int, int]:
    """Return the numbers of finished rollouts and of all rollouts of these evaluations."""
    query = sa.select(rollouts.c.state).join(groups, rollouts.c.group_id == groups.c.id).where(groups.c.tag.in_(tags))
    states = _counted(ledger, query)
    return states.get(RolloutState.FINISHED, 0), sum(states.values())


def _counted(ledger: Ledger, query: sa.Select[Any]) -> dict[str, int]:
    with ledger.read() as connection:
        return dict(Counter(connection.execute(query).scalars()))
