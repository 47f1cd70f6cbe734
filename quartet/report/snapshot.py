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


class Snapshot(Struct, frozen=True, kw_only=True):
    """Content of `quartet status`."""

    run: str
    """Folder of the run."""
    status: RunStatus
    running: bool
    alarms: list[Alarm]
    held_out: dict[str, list[HeldOutResult]] = {}
    """Evaluations before and after training, by the label of their success; none of a live run."""

    def to_dict(self) -> dict[str, Any]:
        return self.status.to_dict() | {"run": self.run, "running": self.running, "alarms": to_builtins(self.alarms)}

    def panel(self) -> Panel:
        return panel(self.status, self.alarms) if self.running else stopped_panel(self.status, self.run, self.held_out)


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
            found = {HELD_OUT: "greedy", HELD_OUT_SAMPLED: "sampled"}
            held_out = {label: held_out_results(self.ledger, how) for label, how in found.items()}
            return Snapshot(run=str(self.run_dir), status=status.stopped(), running=False, alarms=[], held_out=held_out)
        alarms = read_alarms(self.run_dir, self.ledger, self.recipe, status) if self.recipe else []
        return Snapshot(run=str(self.run_dir), status=status, running=True, alarms=alarms)
