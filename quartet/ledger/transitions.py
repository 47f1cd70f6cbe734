"""Transitions of the ledger's three state machines, and database triggers that enforce them.

The triggers reject illegal transitions by any program that writes to the database.
"""

from collections.abc import Mapping
from enum import StrEnum

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.types import BatchState, GroupState, RolloutState

TRANSITIONS: dict[str, dict[tuple[StrEnum, StrEnum], str]] = {
    "rollouts": {
        (RolloutState.QUEUED, RolloutState.LEASED): "a worker claims it",
        (RolloutState.LEASED, RolloutState.QUEUED): "lease expired or released, retried, or recycled",
        (
            RolloutState.LEASED,
            RolloutState.FINISHED,
        ): "appended, evicted, or cancelled with its group or parent",
        (RolloutState.QUEUED, RolloutState.FINISHED): "cancelled, alone or with its group or parent",
    },
    "groups": {
        (GroupState.OPEN, GroupState.CLOSED): "all or enough members finished, or the deadline",
        (GroupState.OPEN, GroupState.DROPPED): "training ended",
        (GroupState.CLOSED, GroupState.TRAINABLE): "the filters let it pass",
        (GroupState.CLOSED, GroupState.DROPPED): "a filter's reason",
        (GroupState.TRAINABLE, GroupState.CLAIMED): "a trainer claims a batch",
        (GroupState.TRAINABLE, GroupState.DROPPED): "over lag, damaged, or quarantined",
        (GroupState.CLAIMED, GroupState.TRAINED): "the batch is committed",
        (GroupState.CLAIMED, GroupState.TRAINABLE): "the batch is released",
        (GroupState.TRAINED, GroupState.TRAINABLE): "rolled back to a checkpoint",
    },
    "batches": {
        (BatchState.CLAIMED, BatchState.COMMITTED): "the policy is on disk",
        (BatchState.CLAIMED, BatchState.RELEASED): "lease expired or released, or damaged",
        (BatchState.COMMITTED, BatchState.RELEASED): "rolled back to a checkpoint",
    },
}
"""All legal transitions per table: (from, to) -> cause."""


def guard(connection: Connection) -> None:
    """Install the triggers on a ledger's tables, replacing older ones."""
    for table, allowed in TRANSITIONS.items():
        for statement in _TRIGGERS[connection.dialect.name]:
            connection.execute(sa.text(statement.format(table=table, illegal=f"NOT ({_any_of(allowed)})")))


def _any_of(allowed: Mapping[tuple[StrEnum, StrEnum], str]) -> str:
    pairs = [f"(OLD.state = '{before}' AND NEW.state = '{after}')" for before, after in allowed]
    return " OR ".join(["OLD.state = NEW.state", *pairs])


_TRIGGERS = {
    "sqlite": (
        "DROP TRIGGER IF EXISTS {table}_guard",
        "CREATE TRIGGER {table}_guard BEFORE UPDATE OF state ON {table} FOR EACH ROW WHEN {illegal}"
        " BEGIN SELECT RAISE(ABORT, 'illegal transition of {table}'); END",
    ),
    "postgresql": (
        "CREATE OR REPLACE FUNCTION refuse_transition() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'illegal transition of %', TG_TABLE_NAME; END $$",
        "DROP TRIGGER IF EXISTS {table}_guard ON {table}",
        "CREATE TRIGGER {table}_guard BEFORE UPDATE OF state ON {table} FOR EACH ROW WHEN ({illegal})"
        " EXECUTE FUNCTION refuse_transition()",
    ),
}
