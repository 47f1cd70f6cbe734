"""Ledger in one SQLite file in WAL mode, beside the run's other files."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import sqlalchemy as sa
from sqlalchemy import event

from quartet.errors import LedgerError, SetupError
from quartet.files.disk import free_megabytes
from quartet.ledger.database.base import Access, Database, Durability

BUSY_TIMEOUT_SECONDS = 20.0
"""Timeout of a transaction that waits for another process's write; Quartet's own writes take about a millisecond."""
PAGE_BYTES, WAL_PAGES = 4096, 16_000
"""Size of a page, and number of pages at which the write-ahead log is copied into the file: 64 MB in total, because
each copy waits for the disk."""
_HEADER = b"SQLite format 3\x00"


class SqliteDatabase(Database):
    """Transactions in a SQLite file, with one writer at a time: `write_beside` equals `write`. Reads do not wait for
    writes."""

    on_one_machine = True

    def __init__(self, path: Path, durability: Durability) -> None:
        # `_transaction` begins and ends transactions instead of SQLAlchemy or Python's sqlite3, in a fifth of the time.
        # So there is nothing to roll back when a connection returns to the pool.
        engine = sa.create_engine(f"sqlite:///{path}", isolation_level="AUTOCOMMIT", pool_reset_on_return=None)
        super().__init__(engine)
        self.path = path
        self._synchronous = "FULL" if durability == "full" else "NORMAL"
        event.listen(self._engine, "connect", self._prepare)

    def check(self) -> None:
        self._check_header()
        with self.read() as connection:
            findings = connection.exec_driver_sql("PRAGMA quick_check(3)").scalars().all()
        if findings != ["ok"]:
            self._damaged("; ".join(str(finding) for finding in findings))

    def shorten_log(self) -> bool:
        """Restart a long log from its beginning. SQLite itself does not restart it while any reader is active.

        Waits up to a second for active readers. Returns False if one reads for longer.
        """
        log = self.path.with_name(f"{self.path.name}-wal")
        if not log.exists() or log.stat().st_size <= PAGE_BYTES * WAL_PAGES:
            return True
        connection: Any = self._engine.raw_connection()
        try:
            connection.execute("PRAGMA busy_timeout = 1000")
            with self._explained():  # the disk may be full
                busy, _, _ = connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        finally:
            connection.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_SECONDS * 1000)}")
            connection.close()
        return not busy

    def now(self, connection: sa.Connection) -> float:
        """Return the machine's monotonic clock, which is the same for all its processes."""
        return time.monotonic()

    def drop(self) -> None:
        self.close()
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def _check_header(self) -> None:
        if not self.path.is_file():
            raise LedgerError(
                f"no ledger at {self.path}", "check the run's name; `quartet train RECIPE` starts a new run"
            )
        with self.path.open("rb") as file:
            header = file.read(len(_HEADER))
        if header != _HEADER:
            self._damaged("it does not begin with the header of an SQLite database")

    @contextmanager
    def _transaction(self, access: Access) -> Iterator[sa.Connection]:
        with self._engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            driver.execute("BEGIN" if access == "read" else "BEGIN IMMEDIATE")
            try:
                yield connection
                driver.execute("COMMIT")
            finally:
                driver.rollback()  # no effect after the commit

    def _prepare(self, connection: Any, record: object) -> None:
        connection.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_SECONDS * 1000)}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_PAGES * PAGE_BYTES}")

    def _explain(self, error: Any) -> None:
        code = getattr(error, "sqlite_errorname", "")
        if not isinstance(error, sqlite3.DatabaseError):
            return
        if code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            self._damaged(str(error))
        if code.startswith(("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC", "SQLITE_IOERR_SHMSIZE")):
            raise SetupError(
                f"cannot write {self.path}: {error} ({free_megabytes(self.path.parent):.0f} MB free)",
                "free some space and continue with --resume; everything committed before is intact",
            ) from error
        if code.startswith("SQLITE_CANTOPEN"):
            raise SetupError(
                f"cannot open {self.path}: {error}",
                "check that its folder exists and that you may create files in it; viewing and exporting create none",
            ) from error
        if code.startswith(("SQLITE_READONLY", "SQLITE_PERM")):
            raise SetupError(
                f"no permission to write {self.path}: {error}",
                "copy the run to a writable folder; viewing and exporting need no write permission",
            ) from error
        if code.startswith("SQLITE_BUSY"):
            raise LedgerError(
                f"{self.path} was locked by another process for {BUSY_TIMEOUT_SECONDS:.0f} s",
                "end the process that holds it (a database browser, a suspended module), then continue with --resume",
            ) from error

    def _damaged(self, finding: str) -> NoReturn:
        raise LedgerError(
            f"the ledger {self.path} is damaged: {finding}",
            f"the weights in {self.path.parent / 'policies'} are not affected: restore a backup of the file, try "
            f"`sqlite3 {self.path.name} .recover`, or start a new run from the newest policy",
        )
