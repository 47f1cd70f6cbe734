"""Totals of the run from the whole ledger, and the checks that no rollout was lost or trained twice."""

from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy import Connection

from quartet.ledger import Ledger
from quartet.ledger.schema import FRESH, IS_FINAL, REPLAY, TrajectoryKind, batches, groups, rollouts, trajectories, uses
from quartet.types import BatchState, GroupState, Purpose, RolloutState, Status

_TRAINED = (
    sa.select(trajectories.c.id, trajectories.c.rollout_id, trajectories.c.part)
    .join(uses, uses.c.trajectory_id == trajectories.c.id)
    .join(batches, uses.c.batch_id == batches.c.id)
    .where(batches.c.state == BatchState.COMMITTED, uses.c.role == FRESH)
)
"""Select the trajectories that committed batches trained on in their own group, one row per batch. The batch's state is
read instead of the column `voided`, to detect rows that are wrongly voided."""
_REPLAYED = (
    sa.select(uses.c.id)
    .join(batches, uses.c.batch_id == batches.c.id)
    .where(batches.c.state == BatchState.COMMITTED, uses.c.role == REPLAY)
)
_REPORTED = sa.select(
    *(
        sa.func.coalesce(sa.func.sum(value), 0).label(name)
        for name, value in {
            "trained_tokens": batches.c.metrics["trained_tokens"].as_integer(),
            "masked_tokens": batches.c.metrics["masked_tokens"].as_integer(),
            "held_back_seconds": batches.c.metrics["held_back_seconds"].as_float(),
        }.items()
    )
).where(batches.c.state == BatchState.COMMITTED)
_SUMMED = ("turns", "prompt_tokens", "response_tokens")


class Totals(Struct, frozen=True, kw_only=True):
    """Totals of the run, from queries over the whole ledger."""

    train_rollouts: int
    """Number of finished training rollouts, without cancelled ones."""
    turns: int
    prompt_tokens: int
    response_tokens: int
    trained_tokens: int
    """Response tokens in the loss of committed batches, as reported by the trainer."""
    masked_tokens: int
    """Response tokens of committed batches masked for exceeding the lag bound, as reported by the trainer."""
    held_back_seconds: float
    """Time that committed batches waited for groups that would otherwise be too old (`admission.on_late` "wait"), as
    reported by the trainer."""
    groups: dict[str, int]
    """Number of training groups by state."""
    dropped_by_reason: dict[str, int]
    """Number of dropped training groups by reason."""
    attempts: dict[str, int]
    """Number of stored trajectories by `TrajectoryKind`."""
    replayed: int
    """Number of stored rollouts that committed batches trained on again (rows of `uses` with the role `replay`)."""
    lost: int
    """Rollouts and trajectories that are neither trained, nor dropped with a reason, nor pending. Must be 0."""
    trained_twice: int
    """Number of trajectories that two committed batches trained on as fresh. Must be 0."""


def run_totals(ledger: Ledger) -> Totals:
    """Return totals of the whole run. The queries take milliseconds per 10,000 rollouts."""
    training = trajectories.c.purpose == Purpose.TRAIN
    final = sa.and_(training, trajectories.c.kind == TrajectoryKind.FINAL)
    sums = sa.select(*(sa.func.coalesce(sa.func.sum(trajectories.c[name]), 0).label(name) for name in _SUMMED)).where(
        final
    )
    ended = rollouts.c.state == RolloutState.FINISHED
    finished = (rollouts.c.purpose == Purpose.TRAIN, ended, rollouts.c.status != Status.CANCELLED)
    of_training = groups.c.purpose == Purpose.TRAIN
    dropped = sa.and_(of_training, groups.c.state == GroupState.DROPPED)
    with ledger.read() as connection:
        sampled, reported = connection.execute(sums).one()._mapping, connection.execute(_REPORTED).one()._mapping
        return Totals(
            train_rollouts=_count(connection, sa.select(rollouts.c.id).where(*finished)),
            turns=sampled["turns"],
            prompt_tokens=sampled["prompt_tokens"],
            response_tokens=sampled["response_tokens"],
            trained_tokens=reported["trained_tokens"],
            masked_tokens=reported["masked_tokens"],
            held_back_seconds=reported["held_back_seconds"],
            groups=_histogram(connection, groups.c.state, of_training),
            dropped_by_reason=_histogram(connection, groups.c.reason, dropped),
            attempts=_histogram(connection, trajectories.c.kind, training),
            replayed=_count(connection, _REPLAYED),
            lost=_lost(connection),
            trained_twice=_trained_twice(connection),
        )


def status_counts(ledger: Ledger) -> dict[str, int]:
    """Return the number of finished rollouts by status, evaluation included."""
    ended = sa.and_(rollouts.c.state == RolloutState.FINISHED, rollouts.c.purpose != Purpose.DEMONSTRATION)
    with ledger.read() as connection:
        return _histogram(connection, rollouts.c.status, ended)


def _count(connection: Connection, query: sa.Select[Any]) -> int:
    return connection.execute(sa.select(sa.func.count()).select_from(query.subquery())).scalar_one()


def _histogram(connection: Connection, column: sa.Column[Any], condition: sa.ColumnElement[bool]) -> dict[str, int]:
    query = sa.select(column, sa.func.count()).where(condition).group_by(column).order_by(column)
    return {row[0]: row[1] for row in connection.execute(query)}


def _lost(connection: Connection) -> int:
    """Count rollouts and trajectories that are in no state of the state machines. Each query covers one kind of loss.

    What is missing is found by outer joins: PostgreSQL reads a long list of NOT IN once per row, and SQLite the tables
    of NOT EXISTS.
    """
    final = sa.select(trajectories.c.rollout_id).where(IS_FINAL).distinct().subquery()
    finished_without_record = (
        sa.select(rollouts.c.id)
        .outerjoin(final, final.c.rollout_id == rollouts.c.id)
        .where(rollouts.c.state == RolloutState.FINISHED, rollouts.c.status != Status.CANCELLED)
        .where(final.c.rollout_id.is_(None))
    )
    countable = (
        sa.select(trajectories.c.id)
        .join(groups, trajectories.c.group_id == groups.c.id)
        .where(trajectories.c.counted, trajectories.c.excluded == "", groups.c.purpose == Purpose.TRAIN)
    )
    trained = _TRAINED.subquery()
    skipped_in_training = countable.outerjoin(trained, trained.c.id == trajectories.c.id).where(
        groups.c.state == GroupState.TRAINED, trained.c.id.is_(None)
    )
    dropped_without_reason = countable.where(groups.c.state == GroupState.DROPPED, groups.c.reason == "")
    live_batch = sa.select(batches.c.id).where(batches.c.state == BatchState.CLAIMED)
    stranded = countable.where(
        groups.c.state == GroupState.CLAIMED,
        sa.or_(groups.c.batch_id.is_(None), groups.c.batch_id.not_in(live_batch)),
    )
    ways = (finished_without_record, skipped_in_training, dropped_without_reason, stranded)
    return sum(_count(connection, query) for query in ways)


def _trained_twice(connection: Connection) -> int:
    trained = _TRAINED.subquery()
    twice = sa.select(trained.c.rollout_id).group_by(trained.c.rollout_id, trained.c.part).having(sa.func.count() > 1)
    return _count(connection, twice)
