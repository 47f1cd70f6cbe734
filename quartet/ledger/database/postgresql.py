"""Ledger in one schema of a PostgreSQL database per run, for workers on many machines."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc

from quartet.errors import LedgerError, LedgerUnreachableError, SetupError
from quartet.ledger.database.answer_timeout import ANSWER_TIMEOUT
from quartet.ledger.database.base import Access, Database
from quartet.ledger.database.location import server_of

_FULL, _GONE = "53100", ("08", "57P", "25P03", "25P04", "55P03", "57014")
"""SQLSTATE of a full disk, and prefixes of SQLSTATEs for an unavailable server: lost or refused connection, client idle
in a transaction, timeout of a lock or a statement."""
MOST_CONNECTIONS = 4
"""Maximum number of connections of one process. A module uses one or two; a further thread waits for a free one."""
CONNECT_SECONDS = 5
"""Connection timeout if `ledger.url` sets no `connect_timeout`."""


class PostgresqlDatabase(Database):
    """Transactions in a PostgreSQL schema. `write` takes the run's advisory lock exclusively, `write_beside` shares it.

    So transactions of workers (claim, renew, append) run concurrently: they lock only their own rows and skip locked
    ones. Transactions of the data manager and the trainer see a ledger without concurrent writes. Commits are always
    synchronous, because otherwise a server crash would lose committed work. A process has at most `MOST_CONNECTIONS`
    connections, which its threads share.
    """

    on_one_machine = False

    def __init__(self, url: str, schema: str, *, sends_password: bool = True) -> None:
        """Set up connections. Without `sends_password` they ignore PGPASSWORD; libpq still reads ~/.pgpass."""
        super().__init__(_engine(url, schema, {} if sends_password else {"password": ""}))
        self.schema = schema
        digest = hashlib.blake2b(schema.encode(), digest_size=8).digest()
        self._lock = int.from_bytes(digest, "big", signed=True)
        self._writing = self._engine.execution_options(isolation_level="READ COMMITTED")
        self._reading = self._engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

    def create(self) -> None:
        """Create the run's schema. Raises `LedgerError` if it already exists."""
        with self._explained(), self._engine.begin() as connection:
            if _exists(connection, self.schema):
                raise LedgerError(f"the database already has a schema {self.schema}", "give the run another name")
            connection.execute(sa.schema.CreateSchema(self.schema))

    def check(self) -> None:
        with self._explained(), self._engine.begin() as connection:
            if not _exists(connection, self.schema):
                raise LedgerError(
                    f"the database {self._name} has no schema {self.schema}: it was dropped, or this is another server",
                    "restore a backup of the schema, or start a new run",
                )

    def drop(self) -> None:
        with self._explained(), self._engine.begin() as connection:
            connection.execute(sa.schema.DropSchema(self.schema, cascade=True, if_exists=True))
        self.close()

    def now(self, connection: sa.Connection) -> float:
        """Return the server's clock, which does not depend on the clients' clocks."""
        return connection.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp())::float8").scalar_one()

    @property
    def _name(self) -> str:
        return _name(self._engine.url)

    @contextmanager
    def _transaction(self, access: Access) -> Iterator[sa.Connection]:
        engine = self._reading if access == "read" else self._writing
        with self._connect(engine) as connection, connection.begin():
            if access != "read":
                connection.exec_driver_sql(self._take_lock(shared=access == "beside"))
            yield connection

    def _connect(self, engine: sa.Engine) -> sa.Connection:
        try:
            return engine.connect()
        except exc.TimeoutError as error:
            raise LedgerUnreachableError(
                f"all {MOST_CONNECTIONS} connections of this process to {self._name} were in use for "
                f"{ANSWER_TIMEOUT.seconds:.0f} s",
                "a statement hangs, or this process has too many threads: continue with --resume",
            ) from error

    def _take_lock(self, *, shared: bool) -> str:
        """Return SQL that takes the run's lock. The server disconnects a process that is suspended while it holds the
        lock, before the waits of other processes time out."""
        function = "pg_advisory_xact_lock" + ("_shared" if shared else "")
        idle = f"set_config('idle_in_transaction_session_timeout', '{_milliseconds(ANSWER_TIMEOUT.seconds / 2)}', true)"
        return f"SELECT {idle}, {function}({self._lock})"

    def _explain(self, error: Any) -> None:
        state: str = getattr(error, "sqlstate", None) or ""
        if state == _FULL:
            raise SetupError(
                f"the disk of {self._name} is full: {error}",
                "free some space there and continue with --resume; everything committed before is intact",
            ) from error
        if "no password supplied" in str(error):
            host, port = server_of(str(self._engine.url))
            raise SetupError(
                f"the ledger's server {host}:{port} asks for a password, and the run's folder alone names this server",
                f"if you trust this server, put its password into ~/.pgpass, or export PGHOST={host} PGPORT={port} "
                "along with PGPASSWORD",
            ) from error
        refused = isinstance(error, self._engine.dialect.loaded_dbapi.OperationalError) and not state
        if state.startswith(_GONE) or refused:
            raise LedgerUnreachableError(
                f"cannot reach the ledger at {self._name}: {error}",
                "start the server or fix ledger.url, then continue with --resume; committed data is intact",
            ) from error


def _engine(url: str, schema: str, defaults: dict[str, str]) -> sa.Engine:
    """Create an engine whose connections use only the run's schema and have the process id in their application name.

    Raises `SetupError` if the driver is not installed.
    """
    target = sa.make_url(url).set(drivername="postgresql+psycopg")
    try:
        engine = sa.create_engine(
            target,
            pool_pre_ping=False,
            pool_size=MOST_CONNECTIONS,
            max_overflow=0,
            pool_timeout=ANSWER_TIMEOUT.seconds,
        )
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
    """Return the parameters of a connection; those in `ledger.url` take precedence.

    The server aborts statements that its clients no longer wait for. Keepalives and `tcp_user_timeout` detect a peer
    whose kernel does not respond; `BoundedConnection` detects a server process that does not respond. Queries are
    not compiled (`jit=off`): with a million rows the planner overestimates a query of each tick, and compiling it takes
    longer than the whole tick.
    """
    lock, statement = _milliseconds(ANSWER_TIMEOUT.seconds * 3 / 4), _milliseconds(ANSWER_TIMEOUT.seconds)
    return {
        "options": f"-cjit=off -clock_timeout={lock} -cstatement_timeout={statement} {options}",
        "application_name": f"quartet-{os.getpid()}",
        "connect_timeout": max(1, int(min(CONNECT_SECONDS, ANSWER_TIMEOUT.left_seconds))),
        "keepalives_idle": 15,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": statement,
    }


def _name(url: sa.URL) -> str:
    """Return the database URL for display, without the password, which may also be a parameter."""
    where = {key: value for key, value in url.query.items() if key in ("host", "port")}
    return url.set(drivername="postgresql", query=where).render_as_string(hide_password=True)


def _milliseconds(seconds: float) -> int:
    """Convert a duration to whole milliseconds, as in PostgreSQL's timeouts; at least 1, because 0 disables a
    timeout."""
    return max(1, round(seconds * 1000))


def server_version(url: str) -> str:
    """Return the server's version.

    Raises `LedgerUnreachableError` if it does not answer, `SetupError` if the driver is not installed.
    """
    database = PostgresqlDatabase(url, "public")
    try:
        with database.read() as connection:
            return connection.execute(sa.text("SHOW server_version")).scalar_one()
    finally:
        database.close()


def _exists(connection: sa.Connection, schema: str) -> Any:
    query = sa.text("SELECT 1 FROM pg_namespace WHERE nspname = :schema")
    return connection.execute(query, {"schema": schema}).first()
