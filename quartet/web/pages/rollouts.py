"""Page "Rollouts": stored rollouts, newest first, with filters; and rollouts that are running or queued."""

from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from quartet.ledger.schema import TrajectoryKind, families
from quartet.types import GroupState, Purpose, Status
from quartet.web.numbers import Natural
from quartet.web.queries.rollouts import MOST_EXAMINED, count_rollouts, list_rollouts, unfinished_rollouts
from quartet.web.queries.selection import Selection
from quartet.web.queries.tasks import why_dropped
from quartet.web.queries.text_search import Found, search_rollouts
from quartet.web.render import render
from quartet.web.viewed_run import ViewedRun, viewed_run


class Wanted(Selection, frozen=True, kw_only=True):
    """Query parameters of the page: filters, and the position in the list."""

    older_than: Natural | None = None
    """List trajectories with an id below this; None starts with the newest."""
    rollout: Natural | None = None
    """Redirect to the page of this rollout."""
    text: str = ""
    """List rollouts whose record contains this text."""


def routes() -> list[Route]:
    return [Route("/runs/{run}/rollouts", show_rollouts, name="rollouts")]


def show_rollouts(request: Request) -> Response:
    run, wanted = viewed_run(request), _wanted(request)
    if wanted.rollout is not None:
        return RedirectResponse(request.url_for("rollout", run=run.name, rollout=wanted.rollout).path)
    first_page = wanted.older_than is None
    with run.ledger.read() as connection:
        found = _found(connection, run, wanted)
        count = count_rollouts(connection, wanted) if first_page and not wanted.text else None
        known = connection.execute(sa.select(families.c.family).order_by(families.c.family)).scalars().all()
        unfinished = unfinished_rollouts(connection) if first_page and not _filtered(request) else None
    waiting = run.ledger.statistics.queue_sizes().rollouts if unfinished is not None else {}
    return render(
        request,
        "rollouts.html",
        run=run,
        page="rollouts",
        wanted=wanted,
        filtered=_filtered(request),
        listed=found.page,
        passages=found.passages,
        count=count,
        unfinished=unfinished,
        waiting=waiting,
        live=first_page and not wanted.text,
        older=str(request.url.include_query_params(older_than=found.page.older_than).query),
        newest=str(request.url.remove_query_params("older_than").query),
        families=known,
        purposes=list(Purpose),
        statuses=list(Status),
        kinds=list(TrajectoryKind),
        most_examined=found.read if wanted.text else MOST_EXAMINED,
        why=_why,
    )


def _found(connection: Connection, run: ViewedRun, wanted: Wanted) -> Found:
    """Return one page of the list; in a search for a text, with the passages that contain it."""
    if wanted.text:
        return search_rollouts(connection, run.ledger.store, wanted, wanted.text, wanted.older_than)
    return Found(page=list_rollouts(connection, wanted, wanted.older_than), passages={})


def _why(row: Any) -> str:
    """Return why a training rollout was not trained: the state of its group, with the reason if the group was
    dropped."""
    if row.group_state == GroupState.DROPPED:
        return f"dropped: {why_dropped(row)}"
    return f"its group is {row.group_state}"


def _wanted(request: Request) -> Wanted:
    fields = {name: value for name, value in request.query_params.items() if value}
    try:
        return msgspec.convert(fields, Wanted, strict=False)
    except msgspec.ValidationError as error:
        raise HTTPException(400, f"the filter cannot be read: {error}") from error


def _filtered(request: Request) -> bool:
    return any(value for name, value in request.query_params.items() if name != "older_than")
