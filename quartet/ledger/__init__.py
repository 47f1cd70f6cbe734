"""The ledger: the shared state of a run, and the contract between its modules.

`Ledger` opens a run's database. Its methods are grouped by subject, one class and file each:
`ledger.rollouts.claim(...)`, `ledger.batches.commit(...)`. Most methods that write are one transaction of about a
millisecond.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.ledger.batches import Batches
from quartet.ledger.blob_files import BlobFiles, LocalBlobFiles
from quartet.ledger.blobs import BlobStore
from quartet.ledger.counters import keep_counts
from quartet.ledger.database import Database, Durability, create_database, find_database, has_database, view_database
from quartet.ledger.disk import Disk
from quartet.ledger.evaluations import Evaluations
from quartet.ledger.failing_tasks import FailingTasks
from quartet.ledger.forks import Forks
from quartet.ledger.groups import Groups
from quartet.ledger.journals import Journals
from quartet.ledger.modules import Modules
from quartet.ledger.object_blobs import ObjectBlobFiles, folder_for
from quartet.ledger.policies import Policies
from quartet.ledger.pool import Pool
from quartet.ledger.quarantine import forget_streaks
from quartet.ledger.rollouts import Rollouts
from quartet.ledger.rows import AppendOutcome, Event
from quartet.ledger.run_database import RunDatabase
from quartet.ledger.schema import SCHEMA_VERSION, events, metadata
from quartet.ledger.schema_version import check_version
from quartet.ledger.statistics import PHASE_BEGAN_AT, Statistics
from quartet.ledger.tables import create_tables
from quartet.ledger.trajectories import Trajectories
from quartet.ledger.trajectory_store import TrajectoryStore
from quartet.ledger.transitions import guard
from quartet.ledger.values import read_value, write_value
from quartet.types import MAIN

__all__ = ["AppendOutcome", "Ledger"]


class Ledger:
    """The ledger of one run. Safe to share between threads; every process opens its own.

    A method raises `SetupError` if the disk is full, `LedgerError` if the database is damaged, and
    `LedgerUnreachableError` if the database server does not answer.
    """

    def __init__(self, db: RunDatabase) -> None:
        self.db = db
        """The run's database, which `rollouts`, `groups` and the others share. Use it for custom statements."""
        self.run_dir = db.run_dir
        self.policy = db.policy
        """Policy whose groups, batches and versions `groups`, `batches` and `policies` read and write; see `of`."""
        self.trained, self.frozen = db.trained, db.frozen
        """Names of the run's policies: the trained ones, and those that only answer requests."""
        self.store = db.store
        """Trajectories by blob digest."""
        self.notifier = db.notifier
        self.forks = Forks(db)
        self.journals = Journals(db)
        self.rollouts, self.trajectories = Rollouts(db), Trajectories(db, self.forks, self.journals)
        self.groups, self.batches, self.policies = Groups(db), Batches(db), Policies(db)
        self.pool, self.evaluations, self.failing_tasks = Pool(db), Evaluations(db), FailingTasks(db)
        self.modules, self.statistics, self.disk = Modules(db), Statistics(db), Disk(db)

    @classmethod
    def exists(cls, run_dir: Path) -> bool:
        """Return whether a run has a ledger. A database without tables does not count: its creator died before the
        commit."""
        if not has_database(run_dir):
            return False
        database = find_database(run_dir)
        try:
            with database.read() as connection:
                return sa.inspect(connection).has_table(metadata.tables["run"].name)
        finally:
            database.close()

    @classmethod
    def create(
        cls,
        run_dir: Path,
        *,
        durability: Durability = "process",
        url: str = "",
        blobs_url: str = "",
        seed: int = 0,
        trained: Sequence[str] = (MAIN,),
        frozen: Sequence[str] = (),
        clock: Callable[[], float] | None = None,
    ) -> "Ledger":
        """Create the ledger of a new run. Raises `LedgerError` if there is one already.

        All arguments but `clock` hold for the whole run. `url` names a PostgreSQL database, or is empty for SQLite.
        `blobs_url` is a store of large blobs, in which the run gets a folder, or empty for the run's own folder. Every
        rollout's sampling seed is derived from `seed`. `trained` and `frozen` name the run's policies. Tests pass
        `clock` to replace the clocks of the database and of the process.
        """
        values: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "durability": durability,
            "blobs_url": folder_for(blobs_url, run_dir) if blobs_url else "",
            "seed": seed,
            "trained_policies": list(trained),
            "frozen_policies": list(frozen),
        }
        if values["blobs_url"]:
            ObjectBlobFiles(values["blobs_url"]).check()
        db = _run_database(run_dir, create_database(run_dir, durability, url), values, clock)
        with db.write() as connection:
            create_tables(connection)
            guard(connection)
            keep_counts(connection)
            for key, value in values.items():
                write_value(connection, key, value)
        return cls(db)

    @classmethod
    def open(cls, run_dir: Path, *, clock: Callable[[], float] | None = None, upgrade: bool = False) -> "Ledger":
        """Open the ledger of an existing run. Raises `LedgerError` if it is missing, damaged, too old or too new.

        With `upgrade` an older schema is migrated; the caller must then hold the run's lock, because running modules of
        an older Quartet could not use a migrated ledger.
        """
        probe = _run_database(run_dir, find_database(run_dir), {}, clock)
        try:
            probe.database.check()
            check_version(probe, upgrade)
            values = {key: probe.value(key, default) for key, default in _DEFAULTS.items()}
        finally:
            probe.database.close()
        return cls(_run_database(run_dir, find_database(run_dir, values["durability"]), values, clock))

    @classmethod
    def view(cls, run_dir: Path) -> "Ledger":
        """Open the ledger of a run for reading only. The run may be active, finished, copied or on a read-only disk.

        The content is not verified, so a large ledger opens as fast as a small one. Raises `LedgerError` if the ledger
        is missing, too old or too new, and at every write.
        """
        database = view_database(run_dir)
        try:
            probe = _run_database(run_dir, database, {}, None)
            database.check()
            check_version(probe, upgrade=False)
            values = {key: probe.value(key, default) for key, default in _DEFAULTS.items()}
        except BaseException:
            database.close()
            raise
        return cls(_run_database(run_dir, database, values, None))

    def of(self, policy: str) -> "Ledger":
        """Return the same ledger for another policy of the run. They share connections: close only one of them."""
        return Ledger(self.db.of(policy))

    def each(self) -> list["Ledger"]:
        """Return the ledger for each trained policy."""
        return [self.of(policy) for policy in self.trained]

    def close(self) -> None:
        """Close this process's connections."""
        self.db.database.close()

    def read(self) -> AbstractContextManager[Connection]:
        """Open a consistent read snapshot for custom queries, such as those of `quartet.web.queries`."""
        return self.db.read()

    def now(self) -> float:
        """Return the time in seconds of the clock for leases and deadlines (`Database.now`)."""
        with self.db.read() as connection:
            return self.db.now(connection)

    def event(self, kind: str, **fields: Any) -> None:
        """Record an event for display; `fields` must be JSON."""
        self.db.event(kind, **fields)

    def events(self, limit: int = 100) -> list[Event]:
        """Return the newest `limit` events, newest first."""
        query = sa.select(events).order_by(events.c.id.desc()).limit(limit)
        with self.db.read() as connection:
            rows = connection.execute(query).all()
        return [Event(time=row.time, kind=row.kind, fields=row.fields) for row in rows]

    def value(self, key: str, default: Any = None) -> Any:
        """Return a named value of the run (`training_seconds`, `stop_reason`, ...), or `default`."""
        return self.db.value(key, default)

    def set_value(self, key: str, value: Any) -> None:
        """Write a named value of the run; it must be JSON."""
        self.db.set_value(key, value)

    def enter_phase(self, phase: str) -> None:
        """Set the run's phase, one of those of `quartet.types.phase`."""
        with self.db.write() as connection:
            write_value(connection, "phase", phase)
            write_value(connection, PHASE_BEGAN_AT, self.db.clock())
        self.notifier.notify("manager")

    def request_stop(self, reason: str) -> None:
        """Request the end of the run; the first reason is kept. The supervisor acts on `stop_reason`."""
        with self.db.write() as connection:
            if read_value(connection, "stop_reason") is None:
                write_value(connection, "stop_reason", reason)
                self.db.record(connection, "stop", reason=reason)

    def stop_reason(self) -> str | None:
        """Return the reason of the requested stop, or None."""
        return self.value("stop_reason")

    def clear_stop(self) -> None:
        """Clear an earlier stop request and the counts of quarantined batches: their cause may have been fixed."""
        self.set_value("stop_reason", None)
        forget_streaks(self.db)


def _run_database(
    run_dir: Path, database: Database, values: dict[str, Any], clock: Callable[[], float] | None
) -> RunDatabase:
    """Return the database with the settings that the run's ledger stores about itself."""
    values = _DEFAULTS | values
    store = TrajectoryStore(BlobStore(database, _blob_files(run_dir, values)))
    return RunDatabase(run_dir, database, store, clock, values["trained_policies"], values["frozen_policies"])


def _blob_files(run_dir: Path, values: dict[str, Any]) -> BlobFiles:
    if values["blobs_url"]:
        return ObjectBlobFiles(values["blobs_url"])
    return LocalBlobFiles(run_dir / "blobs", fsync=values["durability"] == "full")


_DEFAULTS: dict[str, Any] = {
    "durability": "process",
    "blobs_url": "",
    "trained_policies": [MAIN],
    "frozen_policies": [],
}
"""Settings that a run's ledger stores about itself, with the values to assume where they are missing."""
