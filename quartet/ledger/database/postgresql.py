"""One schema of a PostgreSQL database per run: for workers on many machines."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

from quartet.errors import LedgerError, LedgerUnreachableError, SetupError
from quartet.ledger.database.base import Access, Database
from quartet.ledger.database.location import server_of
from quartet.ledger.database.patience import PATIENCE

_FULL, _GONE = "53100", ("08", "57P", "25P03", "25P04", "55P03", "57014")
"""SQLSTATE of a full disk; and the beginnings of those of a lost or refused connection, of one that the server ended
because its client was idle in a transaction, and of a lock or a statement that took too long."""
CONNECT_SECONDS = 5
"""How long to wait for a server that does not answer at all, when `ledger.url` names no `connect_timeout`."""


class PostgresqlDatabase(Database):
    """`write` takes an advisory lock of the run alone, `write_beside` shares it.

    So the transactions of workers (claim, renew, append), which lock only their own rows and skip those that are
    locked, run beside each other, and those of the data manager and the trainer see a ledger at rest. Commits are
    always synchronous: with less, the death of the server would lose what was promised.
    """

    on_one_machine = False

    def __init__(self, url: str, schema: str, *, sends_password: bool = True) -> None:
        """Unless it `sends_password`, PGPASSWORD is not used; libpq still looks the server up in ~/.pgpass."""
        super().__init__(_engine(url, schema, {} if sends_password else {"password": ""}))
        self.schema = schema
        digest = hashlib.blake2b(schema.encode(), digest_size=8).digest()
        self._lock = int.from_bytes(digest, "big", signed=True)
        self._writing = self._engine.execution_options(isolation_level="READ COMMITTED")
        self._reading = self._engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

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

    def now(self, connection: sa.Connection) -> float:
        """The server's clock, whatever those of the clients say."""
        return connection.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp())::float8").scalar_one()

    @property
    def _name(self) -> str:
        return _name(self._engine.url)

    @contextmanager
    def _transaction(self, access: Access) -> Iterator[sa.Connection]:
        engine = self._reading if access == "read" else self._writing
        with engine.connect() as connection, connection.begin():
            if access != "read":
                connection.exec_driver_sql(self._take_lock(shared=access == "beside"))
            yield connection

    def _take_lock(self, *, shared: bool) -> str:
        """SQL that takes the run's lock. A process that is stopped while it holds the lock loses its connection before
        the others lose their patience."""
        function = "pg_advisory_xact_lock" + ("_shared" if shared else "")
        idle = f"set_config('idle_in_transaction_session_timeout', '{_milliseconds(PATIENCE.seconds / 2)}', true)"
        return f"SELECT {idle}, {function}({self._lock})"

    def _explain(self, error: Any) -> None:
        state: str = getattr(error, "sqlstate", None) or ""
        if state == _FULL:
            raise SetupError(
                f"the disk of {self._name} is full: {error}",
                "free some space there and go on with --resume; everything committed before is intact",
            ) from error
        if "no password supplied" in str(error):
            host, port = server_of(str(self._engine.url))
            raise SetupError(
                f"the ledger's server {host}:{port} asks for a password, and the run's folder alone names this server",
                f"if you trust it, put its password into ~/.pgpass, or export PGHOST={host} PGPORT={port} beside "
                "PGPASSWORD",
            ) from error
        refused = isinstance(error, self._engine.dialect.loaded_dbapi.OperationalError) and not state
        if state.startswith(_GONE) or refused:
            raise LedgerUnreachableError(
                f"cannot reach the ledger at {self._name}: {error}",
                "start the server or mend ledger.url, then go on with --resume; what was committed is intact",
            ) from error


def _engine(url: str, schema: str, defaults: dict[str, str]) -> sa.Engine:
    """A connection looks into the run's schema only, and tells the server its process. Raises `SetupError` without the
    driver."""
    target = sa.make_url(url).set(drivername="postgresql+psycopg")
    try:
        engine = sa.create_engine(target, pool_pre_ping=False)
        from quartet.ledger.database.bounded_connection import BoundedConnection
    except ModuleNotFoundError as error:
        raise SetupError(
            "PostgreSQL needs the driver psycopg", "pip install 'quartet-rl[postgresql]', or leave ledger.url empty"
        ) from error

    def connect(dialect: object, record: object, arguments: Any, parameters: dict[str, Any]) -> BoundedConnection:
        options = f"-csearch_path={schema} {parameters.pop('options', '')}"
        return BoundedConnection.to(_name(target), *arguments, **_bounds(options) | defaults | parameters)

    event.listen(engine, "do_connect", connect)
    return engine


def _bounds(options: str) -> dict[str, Any]:
    """Parameters of a connection; those in `ledger.url` win.

    The server ends what its clients no longer wait for. Keepalives and `tcp_user_timeout` find a peer whose kernel is
    gone; `BoundedConnection` finds a server whose kernel is there and that does not answer.
    """
    lock, statement = _milliseconds(PATIENCE.seconds * 3 / 4), _milliseconds(PATIENCE.seconds)
    return {
        "options": f"-clock_timeout={lock} -cstatement_timeout={statement} {options}",
        "application_name": f"quartet-{os.getpid()}",
        "connect_timeout": max(1, int(min(CONNECT_SECONDS, PATIENCE.left_seconds))),
        "keepalives_idle": 15,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": statement,
    }


def _name(url: sa.URL) -> str:
    """The database for people: without the password, which may also be a parameter."""
    where = {key: value for key, value in url.query.items() if key in ("host", "port")}
    return url.set(drivername="postgresql", query=where).render_as_string(hide_password=True)


def _milliseconds(seconds: float) -> int:
    """PostgreSQL counts its time-outs in whole milliseconds; 0 would be none."""
    return max(1, round(seconds * 1000))


def server_version(url: str) -> str:
    """What the server says of itself. Raises `LedgerUnreachableError` when it does not answer, `SetupError` without
    the driver."""
    database = PostgresqlDatabase(url, "public")
    try:
        with database.read() as connection:
            return connection.execute(sa.text("SHOW server_version")).scalar_one()
    finally:
        database.close()


def _exists(connection: sa.Connection, schema: str) -> Any:
    query = sa.text("SELECT 1 FROM pg_namespace WHERE nspname = :schema")
    return connection.execute(query, {"schema": schema}).first()
