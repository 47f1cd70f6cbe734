"""One run directory for the pages, read only; the run may be live, ended, or a copy."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from quartet.config import Recipe
from quartet.errors import LedgerError, RecordsError
from quartet.ledger import Ledger
from quartet.recipe.file import CONFIG, read_resolved
from quartet.report.status import RunStatus, StatusReader
from quartet.report.summary import summary_of_training
from quartet.run.run_dir import supervisor


class ViewedRun:
    """Read access to one run, safe to share between threads.

    Raises `LedgerError` if the folder holds no run. `name` is part of addresses and unique among the server's runs.
    """

    def __init__(self, run_dir: Path, name: str) -> None:
        self.run_dir, self.name = run_dir, name
        if not run_dir.is_dir():
            raise LedgerError(f"no run at {run_dir}", "check the name; `quartet train RECIPE` makes a new run")
        self.ledger = Ledger.view(run_dir)

    @cached_property
    def recipe(self) -> Recipe:
        """The resolved recipe. Raises `ConfigError` if it cannot be read."""
        return read_resolved(self.run_dir / CONFIG)

    @property
    def running(self) -> bool:
        """True if the run's supervisor is running."""
        return supervisor(self.run_dir) is not None

    @cached_property
    def _reader(self) -> StatusReader:
        """Reader of the status; it is kept because it counts rollouts incrementally."""
        return StatusReader(self.run_dir, self.ledger, self.recipe)

    def status(self) -> RunStatus:
        """Return the status of the run; if no supervisor is running, without states and waits of modules."""
        status = self._reader.read()
        return status if self.running else status.stopped()

    def summary(self) -> dict[str, Any] | None:
        """Return the summary of the run's training; None if there is none yet, or it is damaged or outdated."""
        try:
            return summary_of_training(self.run_dir, self.ledger)
        except RecordsError:
            return None  # the page has the ledger's own figures

    def close(self) -> None:
        self.ledger.close()


def open_runs(run_dirs: Sequence[Path]) -> tuple[dict[str, ViewedRun], dict[str, str]]:
    """Return the runs by name, and the error messages of those that cannot be opened, also by name.

    A run has its folder's name; a second folder with the same name becomes `NAME-2`. Raises the last error if no run
    can be opened.
    """
    runs: dict[str, ViewedRun] = {}
    problems: dict[str, str] = {}
    for run_dir in run_dirs:
        folder = run_dir.resolve().name
        names = (folder, *(f"{folder}-{n}" for n in range(2, len(run_dirs) + 2)))
        name = next(name for name in names if name not in runs and name not in problems)
        try:
            runs[name] = ViewedRun(run_dir, name)
        except LedgerError as error:
            problems[name] = str(error)
            if len(problems) == len(run_dirs):
                raise
    return runs, problems


def viewed_run(request: Request) -> ViewedRun:
    """Return the run that the address names. Raises 404 if no run of the server has this name."""
    runs: dict[str, ViewedRun] = request.app.state.runs
    name = request.path_params["run"]
    if name not in runs:
        raise HTTPException(404, f"no run named {name!r} is open here; the open runs are {', '.join(runs)}")
    return runs[name]
