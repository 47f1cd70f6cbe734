"""One schema of a PostgreSQL database per run: for workers on many machines."""

import hashlib
import os
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc

from quartet.data.database.base import Database
from quartet.errors import LedgerError, LedgerUnreachableError, SetupError

_FULL, _GONE = "53100", ("08", "57P")
"""SQLSTATE of a full disk, and how those of a lost or refused connection begin."""


class PostgresqlDatabase(Database):
    """`write` takes an advisory lock of the run alone, `write_beside` shares it.

    So the transactions of workers (claim, renew, append), which lock only their own rows and skip those that are
    locked, run beside each other, and those of the data manager and the trainer see a ledger at rest. Commits are
    always synchronous: with less, the death of the server would lose what was promised.
    """

    def __init__(self, url: str, schema: str) -> None:
        super().__init__(_engine(url, schema))
        self.schema = schema
        digest = hashlib.blake2b(schema.encode(), digest_size=8).digest()
        self._lock = int.from_bytes(digest, "big", signed=True)
        self._writing = self._engine.execution_options(isolation_level="READ COMMITTED")
        self._reading = self._engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        event.listen(self._engine, "begin", self._begin)

    def create(self) -> None:
        """Make the run's schema. Raises `LedgerError` when it is there already."""
        with self._explained(), self._engine.begin() as connection:
            if _exists(connection, self.schema):
                raise LedgerError(f"the database has a schema {self.schema} already", "give the run another name")
            connection.execute(sa.schema.CreateSchema(self.schema))

    def check(self) -> None:
        with self._explained(), self._engine.begin() as connection:
            if not _exists(connection, self.schema):
                raise LedgerError(
                    f"the database {self._name} has no schema {self.schema}",
                    "it was dropped, or this is another server: restore a backup of it, or start a new run",
                )

    def drop(self) -> None:
        with self._explained(), self._engine.begin() as connection:
            connection.execute(sa.schema.DropSchema(self.schema, cascade=True, if_exists=True))
        self.close()

    @property
    def _name(self) -> str:
        return self._engine.url.render_as_string(hide_password=True)

    def _writer(self, *, alone: bool) -> sa.Connection:
        return self._writing.connect().execution_options(locks="alone" if alone else "beside")

    def _reader(self) -> sa.Connection:
        return self._reading.connect()

    def _begin(self, connection: sa.Connection) -> None:
        match connection.get_execution_options().get("locks"):
            case "alone":
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({self._lock})")
            case "beside":
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock_shared({self._lock})")

    def _explain(self, error: exc.DatabaseError) -> None:
        state: str = getattr(error.orig, "sqlstate", None) or ""
        if state == _FULL:
            raise SetupError(
                f"the disk of {self._name} is full: {error.orig}",
                "free some space there and go on with --resume; everything committed before is intact",
            ) from error
        refused = isinstance(error, exc.OperationalError) and not state
        if error.connection_invalidated or state.startswith(_GONE) or refused:
            raise LedgerUnreachableError(
                f"cannot reach the ledger at {self._name}: {error.orig}",
                "start the server or mend ledger.url, then go on with --resume; what was committed is intact",
            ) from error


def _engine(url: str, schema: str) -> sa.Engine:
    """A connection looks into the run's schema only, and tells the server its process. Raises `SetupError` without the
    driver."""
    driver = sa.make_url(url).set(drivername="postgresql+psycopg")
    options = {"options": f"-csearch_path={schema}", "application_name": f"quartet-{os.getpid()}"}
    try:
        return sa.create_engine(driver, connect_args=options, pool_pre_ping=False)
    except ModuleNotFoundError as error:
        raise SetupError(
            "PostgreSQL needs the driver psycopg", "pip install 'quartet-rl[postgresql]', or leave ledger.url empty"
        ) from error


def _exists(connection: sa.Connection, schema: str) -> Any:
    query = sa.text("SELECT 1 FROM pg_namespace WHERE nspname = :schema")
    return connection.execute(query, {"schema": schema}).first()
