"""Read-only snapshots of a run, live or not: its status and alarms."""

from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins
from rich.panel import Panel

from quartet.errors import ConfigError, LedgerError
from quartet.ledger import Ledger
from quartet.recipe.file import CONFIG, read_resolved
from quartet.report.alarms import Alarm, read_alarms
from quartet.report.held_out import HeldOutResult, held_out_results
from quartet.report.labels import HELD_OUT, HELD_OUT_SAMPLED
from quartet.report.panel import panel, stopped_panel
from quartet.report.status import RunStatus, StatusReader
from quartet.run.run_dir import supervisor

LABELS = {"greedy": HELD_OUT, "sampled": HELD_OUT_SAMPLED}
"""Label of the success in held-out evaluations, by how they sample."""


class Snapshot(Struct, frozen=True, kw_only=True):
    """Content of `quartet status`."""

    run: str
    """Folder of the run."""
    status: RunStatus
    running: bool
    alarms: list[Alarm]
    held_out: dict[str, list[HeldOutResult]] = {}
    """Evaluations before and after training, `greedy` and `sampled`, by time; none of a live run."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the status and of the snapshot as one JSON object."""
        own = {name: to_builtins(getattr(self, name)) for name in ("run", "running", "alarms", "held_out")}
        return self.status.to_dict() | own

    def panel(self) -> Panel:
        if self.running:
            return panel(self.status, self.alarms)
        labelled = {LABELS[how]: results for how, results in self.held_out.items()}
        return stopped_panel(self.status, self.run, labelled)


def is_starting(run_dir: Path) -> bool:
    """Return whether the run's supervisor runs but has not made the ledger yet."""
    return supervisor(run_dir) is not None and not Ledger.exists(run_dir)


class SnapshotReader:
    """Context manager that takes snapshots of a run and writes nothing. Entering raises `LedgerError` without a ledger.

    If the run's recipe is of an older Quartet and can no longer be read, the snapshots have no progress and no alarms,
    and `note` gives the reason.
    """

    def __init__(self, run_dir: Path) -> None:
        self.run_dir, self.note = run_dir, ""

    def __enter__(self) -> "SnapshotReader":
        if is_starting(self.run_dir):
            raise LedgerError(f"{self.run_dir} is starting and has no ledger yet", "try again in a few seconds")
        self.ledger = Ledger.view(self.run_dir)
        try:
            self.recipe = read_resolved(self.run_dir / CONFIG)
        except ConfigError as error:
            self.recipe, self.note = None, f"progress and alarms are not available: {error}"
        self._reader = StatusReader(self.run_dir, self.ledger, self.recipe)
        return self

    def __exit__(self, *_: object) -> None:
        self.ledger.close()

    def read(self) -> Snapshot:
        """Return the run's status as of now."""
        status = self._reader.read()
        if supervisor(self.run_dir) is None:
            held_out = {how: held_out_results(self.ledger, how) for how in LABELS}
            return Snapshot(run=str(self.run_dir), status=status.stopped(), running=False, alarms=[], held_out=held_out)
        alarms = read_alarms(self.run_dir, self.ledger, self.recipe, status) if self.recipe else []
        return Snapshot(run=str(self.run_dir), status=status, running=True, alarms=alarms)
