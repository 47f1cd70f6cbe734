"""One run directory as the pages see it: read only, whether the run is at work, finished, or a copy."""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from quartet.config import Recipe
from quartet.errors import LedgerError
from quartet.ledger import Ledger
from quartet.recipe.file import read_resolved
from quartet.report.status import RunStatus, StatusReader
from quartet.run.run_dir import CONFIG, supervisor_pid


class ViewedRun:
    """Safe to share between threads. Raises `LedgerError` when there is no run, `ConfigError` for a broken recipe."""

    def __init__(self, run_dir: Path, name: str) -> None:
        self.run_dir, self.name = run_dir, name
        """`name` is part of addresses; no other run of the server has it."""
        if not run_dir.is_dir():
            raise LedgerError(f"no run at {run_dir}", "check the name; `quartet train RECIPE` makes a new run")
        self.ledger = Ledger.view(run_dir)

    @cached_property
    def recipe(self) -> Recipe:
        """The resolved recipe."""
        return read_resolved(self.run_dir / CONFIG)

    @property
    def running(self) -> bool:
        """Return whether a supervisor works on it now, on this machine."""
        return supervisor_pid(self.run_dir) is not None

    @cached_property
    def _reader(self) -> StatusReader:
        """Kept: its counter goes on from the last count."""
        return StatusReader(self.run_dir, self.ledger, self.recipe)

    def status(self) -> RunStatus:
        """Return the state of every module; at rest when no supervisor works on the run."""
        status = self._reader.read()
        return status if self.running else status.at_rest()

    def summary(self) -> dict[str, Any] | None:
        """Return the summary that the last command wrote at its end; None before that."""
        path = self.run_dir / "summary.json"
        return json.loads(path.read_text()) if path.is_file() else None

    def close(self) -> None:
        self.ledger.close()


def open_runs(run_dirs: Sequence[Path]) -> tuple[dict[str, ViewedRun], dict[str, str]]:
    """Return the runs by name, and the errors of those that cannot be opened. A name is the folder's; a second folder
    of the same name becomes `NAME-2`. Raises the last error when no run can be opened."""
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
    """The run that the address names. Raises 404 for a name that was not given on the command line."""
    runs: dict[str, ViewedRun] = request.app.state.runs
    name = request.path_params["run"]
    if name not in runs:
        raise HTTPException(404, f"no run named {name!r} is open here: {', '.join(runs)}")
    return runs[name]
