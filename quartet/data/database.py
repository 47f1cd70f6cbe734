"""One SQLite file in WAL mode: connections, transactions, and errors a person can act on."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NoReturn

import sqlalchemy as sa
from sqlalchemy import event, exc

from quartet.data.disk import free_megabytes
from quartet.errors import LedgerError, SetupError

BUSY_TIMEOUT_SECONDS = 20.0
"""A transaction waits this long for another process's write; ours take about a millisecond."""

Durability = Literal["process", "full"]
_HEADER = b"SQLite format 3\x00"


class Database:
    """Transactions on one SQLite file; safe to share between threads, not across a fork."""

    def __init__(self, path: Path, durability: Durability) -> None:
        self.path = path
        self._synchronous = "FULL" if durability == "full" else "NORMAL"
        self._engine = sa.create_engine(f"sqlite:///{path}")
        event.listen(self._engine, "connect", self._prepare)
        event.listen(self._engine, "begin", _begin)

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """One write transaction. It takes the write lock at once, so it never has to be restarted half-way."""
        with self._explained(), self._engine.connect().execution_options(write=True) as connection, connection.begin():
            yield connection

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """One consistent snapshot."""
        with self._explained(), self._engine.connect() as connection, connection.begin():
            yield connection

    def check(self) -> None:
        """Raise `LedgerError` when the file is no intact SQLite database."""
        if not self.path.is_file():
            raise LedgerError(
                f"no ledger at {self.path}", "check the run's name; `quartet train RECIPE` makes a new run"
            )
        with self.path.open("rb") as file:
            header = file.read(len(_HEADER))
        if header != _HEADER:
            self._damaged("it does not begin like an SQLite database")
        with self.read() as connection:
            findings = connection.exec_driver_sql("PRAGMA quick_check(3)").scalars().all()
        if findings != ["ok"]:
            self._damaged("; ".join(str(finding) for finding in findings))

    def close(self) -> None:
        """Close all connections of this process."""
        self._engine.dispose()

    def _prepare(self, connection: Any, record: object) -> None:
        connection.isolation_level = None  # SQLAlchemy's "begin" event decides, not Python's sqlite3
        connection.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_SECONDS * 1000)}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute("PRAGMA foreign_keys = ON")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except exc.DatabaseError as error:
            if not isinstance(error.orig, sqlite3.DatabaseError):
                raise
            self._explain(error.orig)
            raise

    def _explain(self, error: sqlite3.DatabaseError) -> None:
        """Raise the error a person can act on; return when the error is our own bug."""
        code = getattr(error, "sqlite_errorname", "")
        if code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            self._damaged(str(error))
        if code.startswith(("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC", "SQLITE_IOERR_SHMSIZE")):
            raise SetupError(
                f"cannot write {self.path}: {error} ({free_megabytes(self.path.parent):.0f} MB free)",
                "free some space and go on with --resume; everything committed before is intact",
            ) from error
        if code.startswith("SQLITE_BUSY"):
            raise LedgerError(
                f"{self.path} stayed locked by another process for {BUSY_TIMEOUT_SECONDS:.0f} s",
                "end the process that holds it (a database browser, a stopped module), then go on with --resume",
            ) from error

    def _damaged(self, finding: str) -> NoReturn:
        raise LedgerError(
            f"the ledger {self.path} is damaged: {finding}",
            f"the weights in {self.path.parent / 'policies'} are not touched by this: put a backup of the file in its "
            f"place, try `sqlite3 {self.path.name} .recover`, or start a new run from the newest policy",
        )


def _begin(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
