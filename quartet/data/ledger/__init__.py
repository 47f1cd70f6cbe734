"""The ledger: the only contract between the modules of a run.

One class, one file per state machine. Every public method is one transaction; each takes about a millisecond.
"""

import time
from collections.abc import Callable
from pathlib import Path

from quartet.data.blobs import BlobStore
from quartet.data.database import Database, Durability
from quartet.data.ledger.batches import Batches
from quartet.data.ledger.bias import Bias
from quartet.data.ledger.check import Check
from quartet.data.ledger.disk_space import DiskSpace
from quartet.data.ledger.evaluations import Evaluations
from quartet.data.ledger.modules import Modules
from quartet.data.ledger.rollouts import Rollouts
from quartet.data.ledger.statistics import Statistics
from quartet.data.migrations import MIGRATIONS, migrate
from quartet.data.rows import AppendOutcome
from quartet.data.schema import SCHEMA_VERSION, metadata
from quartet.data.trajectory_store import TrajectoryStore
from quartet.data.transitions import guard
from quartet.errors import LedgerError

__all__ = ["AppendOutcome", "Ledger"]

_FILE = "ledger.sqlite"


class Ledger(Rollouts, Evaluations, Batches, Modules, Statistics, Check, Bias, DiskSpace):
    """The ledger of one run. Safe to share between threads; every process opens its own.

    Any method raises `SetupError` on a full disk and `LedgerError` when the file turns out to be damaged.
    """

    @classmethod
    def create(
        cls,
        run_dir: Path,
        *,
        durability: Durability = "process",
        seed: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> "Ledger":
        """Make the ledger of a new run. Raises `LedgerError` when there is one already.

        `durability` holds for the whole run; `seed` is where every rollout's sampling seed is derived from.
        """
        path = run_dir / _FILE
        if path.exists():
            raise LedgerError(f"there is a run in {run_dir} already", "go on with it by --resume, or give another name")
        run_dir.mkdir(parents=True, exist_ok=True)
        ledger = cls._connect(run_dir, durability, clock)
        with ledger._database.write() as connection:
            metadata.create_all(connection)
            guard(connection)
            ledger._set_value(connection, "schema_version", SCHEMA_VERSION)
            ledger._set_value(connection, "durability", durability)
            ledger._set_value(connection, "seed", seed)
        return ledger

    @classmethod
    def open(cls, run_dir: Path, *, clock: Callable[[], float] = time.time, upgrade: bool = False) -> "Ledger":
        """Open the ledger of an existing run. Raises `LedgerError` when it is missing, damaged, too old or too new.

        With `upgrade` an older schema is brought up to date. Only who holds the run's lock may ask for that: modules of
        an older Quartet that are still at work would lose their ledger.
        """
        probe = Database(run_dir / _FILE, "process")
        try:
            probe.check()
        finally:
            probe.close()
        ledger = cls._connect(run_dir, "process", clock)
        try:
            ledger._check_version(upgrade)
        except LedgerError:
            ledger.close()
            raise
        durability: Durability = ledger.value("durability", "process")
        if durability == "full":
            ledger.close()
            ledger = cls._connect(run_dir, durability, clock)
        return ledger

    def _check_version(self, upgrade: bool) -> None:
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
            f"{self.run_dir / _FILE} has schema version {version}, this Quartet reads version {SCHEMA_VERSION}", advice
        )

    def _upgrade(self) -> None:
        with self._database.write() as connection:
            version = self._value(connection, "schema_version", 0)  # somebody may have been faster
            migrate(connection, version, SCHEMA_VERSION)
            guard(connection)
            self._set_value(connection, "schema_version", SCHEMA_VERSION)
            self._event(connection, "ledger_upgraded", from_version=version, to_version=SCHEMA_VERSION)

    @classmethod
    def _connect(cls, run_dir: Path, durability: Durability, clock: Callable[[], float]) -> "Ledger":
        blobs = BlobStore(run_dir / "blobs", fsync=durability == "full")
        return cls(run_dir, Database(run_dir / _FILE, durability), TrajectoryStore(blobs), clock)
