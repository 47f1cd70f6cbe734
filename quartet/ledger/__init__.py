"""The ledger: the only contract between the modules of a run.

One class, with one file per state machine. Every public method is one transaction and takes about a millisecond.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from quartet.errors import LedgerError
from quartet.ledger.bias import Bias
from quartet.ledger.blob_files import LocalBlobFiles, ObjectBlobFiles
from quartet.ledger.blobs import BlobStore
from quartet.ledger.check import Check
from quartet.ledger.claims import Claims
from quartet.ledger.costs import Costs
from quartet.ledger.database import Database, Durability, create_database, find_database, has_database, view_database
from quartet.ledger.demonstrations import Demonstrations
from quartet.ledger.disk_space import DiskSpace
from quartet.ledger.export import Export
from quartet.ledger.fates import Fates
from quartet.ledger.forks import Forks
from quartet.ledger.held_out import HeldOut
from quartet.ledger.migrations import MIGRATIONS, migrate
from quartet.ledger.modules import Modules
from quartet.ledger.overview import CurrentState
from quartet.ledger.quarantine import Quarantine
from quartet.ledger.recent import Recent
from quartet.ledger.rows import AppendOutcome
from quartet.ledger.schema import SCHEMA_VERSION, metadata
from quartet.ledger.statistics import Statistics
from quartet.ledger.trajectory_store import TrajectoryStore
from quartet.ledger.transitions import guard
from quartet.types import MAIN

__all__ = ["AppendOutcome", "Ledger"]


class Ledger(
    Demonstrations,
    Forks,
    HeldOut,
    Claims,
    Quarantine,
    Modules,
    CurrentState,
    Statistics,
    Recent,
    Costs,
    Check,
    Bias,
    Fates,
    DiskSpace,
    Export,
):
    """The ledger of one run. Safe to share between threads; every process opens its own.

    Any method raises `SetupError` on a full disk and `LedgerError` if the file is damaged.
    """

    @classmethod
    def exists(cls, run_dir: Path) -> bool:
        """Return whether a run has a ledger. One without tables does not count: its creator died before the commit."""
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
        `blobs_url` is the store of large blobs, or empty for the run's folder. Every rollout's sampling seed is derived
        from `seed`. `trained` and `frozen` name the run's policies. `clock` replaces all other clocks, for tests.
        """
        values: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "durability": durability,
            "blobs_url": blobs_url,
            "seed": seed,
            "trained_policies": list(trained),
            "frozen_policies": list(frozen),
        }
        ledger = cls._on(run_dir, create_database(run_dir, durability, url), values, clock)
        with ledger._database.write() as connection:
            metadata.create_all(connection)
            guard(connection)
            for key, value in values.items():
                ledger._set_value(connection, key, value)
        return ledger

    @classmethod
    def open(cls, run_dir: Path, *, clock: Callable[[], float] | None = None, upgrade: bool = False) -> "Ledger":
        """Open the ledger of an existing run. Raises `LedgerError` if it is missing, damaged, too old or too new.

        With `upgrade` an older schema is migrated. That needs the run's lock: running modules of an older Quartet could
        not use the ledger any more.
        """
        probe = cls._on(run_dir, find_database(run_dir), {}, clock)
        try:
            probe._database.check()
            probe._check_version(upgrade)
            values = {key: probe.value(key, default) for key, default in _DEFAULTS.items()}
        finally:
            probe.close()
        return cls._on(run_dir, find_database(run_dir, values["durability"]), values, clock)

    @classmethod
    def view(cls, run_dir: Path) -> "Ledger":
        """Open the ledger of a run for reading only. The run may be active, finished, copied or on a read-only disk.

        The cost does not depend on the size. Raises `LedgerError` if it is missing, too old or too new, and at writes.
        """
        database = view_database(run_dir)
        probe = cls._on(run_dir, database, {}, None)
        database.check()
        probe._check_version(upgrade=False)
        values = {key: probe.value(key, default) for key, default in _DEFAULTS.items()}
        return cls._on(run_dir, database, values, None)

    def _check_version(self, upgrade: bool) -> None:
        with self._database.read() as connection:
            made = sa.inspect(connection).has_table("run")
        if not made:
            raise LedgerError(
                f"the ledger of {self.run_dir} has no tables: the process that created it was stopped early",
                "it held no data; start the run again with --fresh",
            )
        version = self.value("schema_version", 0)
        if version == SCHEMA_VERSION:
            return
        if version > SCHEMA_VERSION or version not in MIGRATIONS:
            advice = "use the Quartet that wrote it" + (" or a newer one" if version > SCHEMA_VERSION else "")
        elif not upgrade:
            advice = f"upgrade it with `quartet ledger upgrade {self.run_dir}`, or by resuming the run"
        else:
            return self._upgrade()
        raise LedgerError(
            f"the ledger of {self.run_dir} has schema version {version}, this Quartet reads version {SCHEMA_VERSION}",
            advice,
        )

    def _upgrade(self) -> None:
        with self._database.write() as connection:
            version = self._value(connection, "schema_version", 0)  # another process may have upgraded it
            migrate(connection, version, SCHEMA_VERSION)
            guard(connection)
            self._set_value(connection, "schema_version", SCHEMA_VERSION)
            self._event(connection, "ledger_upgraded", from_version=version, to_version=SCHEMA_VERSION)

    @classmethod
    def _on(
        cls, run_dir: Path, database: Database, values: dict[str, Any], clock: Callable[[], float] | None
    ) -> "Ledger":
        values = _DEFAULTS | values
        files = (
            ObjectBlobFiles(values["blobs_url"])
            if values["blobs_url"]
            else LocalBlobFiles(run_dir / "blobs", fsync=values["durability"] == "full")
        )
        store, trained = TrajectoryStore(BlobStore(database, files)), values["trained_policies"]
        return cls(run_dir, database, store, clock, trained, values["frozen_policies"])


_DEFAULTS: dict[str, Any] = {
    "durability": "process",
    "blobs_url": "",
    "trained_policies": [MAIN],
    "frozen_policies": [],
}
"""Settings that a run's ledger stores about itself, with the values to assume where they are missing."""
