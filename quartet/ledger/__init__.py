"""The ledger: the only contract between the modules of a run.

One class, one file per state machine. Every public method is one transaction; each takes about a millisecond.
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

    Any method raises `SetupError` on a full disk and `LedgerError` when the file turns out to be damaged.
    """

    @classmethod
    def exists(cls, run_dir: Path) -> bool:
        """Whether a run has its ledger. One without tables is none: who made it was killed before the commit."""
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
        """Make the ledger of a new run. Raises `LedgerError` when there is one already.

        All of it holds for the whole run: `url` names a PostgreSQL database, empty is SQLite; `blobs_url` is where
        large blobs go, empty is the run's folder; `seed` is where every rollout's sampling seed is derived from;
        `trained` and `frozen` name the run's policies. A `clock` takes the place of all others, for tests.
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
        """Open the ledger of an existing run. Raises `LedgerError` when it is missing, damaged, too old or too new.

        With `upgrade` an older schema is brought up to date. Only who holds the run's lock may ask for that: modules of
        an older Quartet that are still at work would lose their ledger.
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
        """Open the ledger of a run for looking only, however large it is, whether the run is at work, finished, copied
        or on a read-only disk. Raises `LedgerError` when it is missing, too old or too new, and at any write."""
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
                f"the ledger of {self.run_dir} has no tables: whoever made it was stopped half-way",
                "nothing was in it; start the run again with --fresh",
            )
        version = self.value("schema_version", 0)
        if version == SCHEMA_VERSION:
            return
        if version > SCHEMA_VERSION or version not in MIGRATIONS:
            advice = "use the Quartet that wrote it" + (" or a newer one" if version > SCHEMA_VERSION else "")
        elif not upgrade:
            advice = f"`quartet ledger upgrade {self.run_dir}` brings it up to date, so does resuming the run"
        else:
            return self._upgrade()
        raise LedgerError(
            f"the ledger of {self.run_dir} has schema version {version}, this Quartet reads version {SCHEMA_VERSION}",
            advice,
        )

    def _upgrade(self) -> None:
        with self._database.write() as connection:
            version = self._value(connection, "schema_version", 0)  # somebody may have been faster
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
"""What a run's ledger says of itself, and what it means when it does not."""
