"""Named values of a run in its table `run`, read and written inside the caller's transaction."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.ledger.schema import run_values
from quartet.types import MAIN

_VALUE = sa.select(run_values.c.value).where(run_values.c.key == sa.bindparam("key"))


def read_value(connection: Connection, key: str, default: Any = None) -> Any:
    """Return a value, or `default` if it was never written."""
    row = connection.execute(_VALUE, {"key": key}).one_or_none()
    return default if row is None else row.value


def write_value(connection: Connection, key: str, value: Any) -> None:
    """Write a value; it must be JSON."""
    update = sa.update(run_values).where(run_values.c.key == key).values(value=value)
    if not connection.execute(update).rowcount:
        connection.execute(sa.insert(run_values).values(key=key, value=value))


def policy_key(name: str, policy: str) -> str:
    """Return the key of a value that the run stores per policy."""
    return name if policy == MAIN else f"{name}@{policy}"
