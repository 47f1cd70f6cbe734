"""Page with the list of runs: the state of each, its success, and its notes."""

from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from quartet.errors import ConfigError, QuartetError
from quartet.report.costs import training_began
from quartet.report.held_out import HeldOutResult, held_out_results
from quartet.run.notes import Notes, read_notes
from quartet.web.render import render
from quartet.web.viewed_run import ViewedRun


class RunRow(Struct, frozen=True, kw_only=True):
    """One row of the list."""

    run: Any
    """`ViewedRun`."""
    status: Any
    """`RunStatus`."""
    began_at: float | None
    """Unix seconds at which the first training group was admitted; None before that."""
    held_out: HeldOutResult | None
    """Result of the newest greedy evaluation before or after training; None if there is none."""
    notes: Notes


def routes() -> list[Route]:
    return [Route("/", show_runs, name="runs")]


def show_runs(request: Request) -> Response:
    """Show the list, or redirect to the run if there is only one. Runs that cannot be read are listed as problems."""
    runs: dict[str, ViewedRun] = request.app.state.runs
    rows, problems = list[RunRow](), dict[str, str](request.app.state.problems)
    if len(runs) == 1 and not problems:
        return RedirectResponse(request.url_for("run", run=next(iter(runs))).path)
    for name, run in runs.items():
        try:
            rows.append(_row(run))
        except QuartetError as error:
            problems[name] = str(error)
    return render(request, "runs.html", rows=rows, problems=problems)


def _row(run: ViewedRun) -> RunRow:
    results = held_out_results(run.ledger)
    return RunRow(
        run=run,
        status=run.status(),
        began_at=training_began(run.ledger),
        held_out=results[-1] if results else None,
        notes=_notes(run),
    )


def _notes(run: ViewedRun) -> Notes:
    """Return a run's notes. If their file cannot be read, return the error as a note, so that the list still shows."""
    try:
        return read_notes(run.run_dir)
    except ConfigError as error:
        return Notes(note=error.what)
