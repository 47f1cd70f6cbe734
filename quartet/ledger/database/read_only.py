"""Read-only variants of the databases: they write nothing, neither into the ledger nor beside it."""

import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from quartet.errors import LedgerError, SetupError
from quartet.ledger.database.base import Access
from quartet.ledger.database.postgresql import PostgresqlDatabase
from quartet.ledger.database.sqlite import BUSY_TIMEOUT_SECONDS, SqliteDatabase

MAX_OPEN_ATTEMPTS = 3
"""Maximum number of attempts to open the files, which may change between their inspection and their opening."""


class ReadOnlySqlite(SqliteDatabase):
    """A SQLite file that may be growing, finished, copied or on a read-only disk.

    Each transaction reopens the file, because the way to open it changes when the run starts or ends. By default SQLite
    would create the two files of the write-ahead log beside a database that it only reads.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "process")
        self._engine = sa.create_engine(
            "sqlite://",
            creator=self._connect,
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
            pool_reset_on_return=None,
        )
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self._copied_from: list[tuple[int, int]] = []
        self._copying = threading.Lock()

    def check(self) -> None:
        """Check only the file header: reading every page would take time proportional to the run's size."""
        self._check_header()

    def close(self) -> None:
        super().close()
        self._forget_copy()

    @contextmanager
    def _transaction(self, access: Access) -> Iterator[sa.Connection]:
        _refuse_writing(access, str(self.path))
        with super()._transaction(access) as connection:
            yield connection

    def _connect(self) -> sqlite3.Connection:
        """Connect, with retries in case a run that ends deletes the log and its index before they are open."""
        for _ in range(MAX_OPEN_ATTEMPTS - 1):
            try:
                return self._open_as_it_is()
            except FileNotFoundError:
                continue
            except sqlite3.OperationalError as error:
                if not error.sqlite_errorname.startswith("SQLITE_CANTOPEN"):
                    raise
        return self._open_as_it_is()

    def _open_as_it_is(self) -> sqlite3.Connection:
        log, index = (self.path.with_name(self.path.name + suffix) for suffix in ("-wal", "-shm"))
        if index.exists() and log.exists():
            return _opened(self.path, "mode=ro&readonly_shm=1")
        if not log.exists() or log.stat().st_size == 0:
            return _opened(self.path, "mode=ro&immutable=1")
        with self._copying:
            return _opened(self._copied(log), "mode=ro&immutable=1")

    def _copied(self, log: Path) -> Path:
        """Return a temporary copy with the log applied, for a killed run that was copied without the log's index.

        The copy is renewed if the files change.
        """
        state = [(file.stat().st_mtime_ns, file.stat().st_size) for file in (self.path, log)]
        if self._copy is None or state != self._copied_from:
            self._forget_copy()  # active readers have its file open
            self._copy = tempfile.TemporaryDirectory(prefix="quartet-view-")
            for file in (self.path, log):
                shutil.copy(file, self._copy.name)
            copy = sqlite3.connect(Path(self._copy.name) / self.path.name)
            copy.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            copy.close()
            self._copied_from = state
        return Path(self._copy.name) / self.path.name

    def _forget_copy(self) -> None:
        if self._copy is not None:
            self._copy.cleanup()
        self._copy, self._copied_from = None, []

    def _explain(self, error: Any) -> None:
        code = getattr(error, "sqlite_errorname", "")
        if code.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY_", "SQLITE_PERM")):
            raise SetupError(
                f"cannot read {self.path}: {error}",
                "check that the file exists and that you may read it and the files beside it (-wal, -shm)",
            ) from error
        super()._explain(error)


class ReadOnlyPostgresql(PostgresqlDatabase):
    """A schema of a PostgreSQL database. Write transactions are refused here; the server refuses a write inside a read
    transaction."""

    @contextmanager
    def _transaction(self, access: Access) -> Iterator[sa.Connection]:
        _refuse_writing(access, self._name)
        with super()._transaction(access) as connection:
            yield connection


def _opened(path: Path, how: str) -> sqlite3.Connection:
    uri = f"{path.resolve().as_uri()}?{how}"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_SECONDS, check_same_thread=False)
    connection.isolation_level = None
    try:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA schema_version")  # the first read opens the log and its index
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


def _refuse_writing(access: Access, where: Any) -> None:
    if access != "read":
        raise LedgerError(f"the ledger at {where} is open for reading only")
