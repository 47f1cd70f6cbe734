"""The list of runs that the server shows: how far each is, what it reached, and what people wrote about it."""

from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from quartet.errors import ConfigError, QuartetError
from quartet.ledger.held_out import HeldOutResult
from quartet.run.notes import Notes, read_notes
from quartet.web.render import render
from quartet.web.viewed_run import ViewedRun


class RunRow(Struct, frozen=True, kw_only=True):
    """One run of the list."""

    run: Any
    """`ViewedRun`."""
    status: Any
    """`RunStatus`."""
    began_at: float | None
    """Unix seconds of the first training group; None before it."""
    held_out: HeldOutResult | None
    """The newest greedy evaluation before or after training."""
    notes: Notes


def routes() -> list[Route]:
    return [Route("/", show_runs, name="runs")]


def show_runs(request: Request) -> Response:
    """A single run needs no list. A run that cannot be read must not hide the others."""
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
    results = run.ledger.held_out_results()
    return RunRow(
        run=run,
        status=run.status(),
        began_at=run.ledger.training_began(),
        held_out=results[-1] if results else None,
        notes=_notes(run),
    )


def _notes(run: ViewedRun) -> Notes:
    """A file that cannot be read must not hide the other runs."""
    try:
        return read_notes(run.run_dir)
    except ConfigError as error:
        return Notes(note=error.what)
