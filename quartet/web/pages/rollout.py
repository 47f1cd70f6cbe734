"""One rollout, turn by turn; one of its turns with the raw call; and the pictures of both."""

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from quartet.data.blobs import DamagedBlobError
from quartet.web.numbers import NaturalConvertor as NaturalConvertor  # `:natural` in the routes
from quartet.web.pictures import media_type
from quartet.web.queries.rollout import RolloutFacts, read_rollout, read_trajectory
from quartet.web.render import render
from quartet.web.rollout_view import KINDS, RolloutView, view_rollout
from quartet.web.tokens import MEASURES
from quartet.web.viewed_run import viewed_run


def routes() -> list[Route]:
    return [
        Route("/runs/{run}/rollouts/{rollout:natural}", show_rollout, name="rollout"),
        Route("/runs/{run}/rollouts/{rollout:natural}/turns/{turn:natural}", show_turn, name="turn"),
        Route(
            "/runs/{run}/trajectories/{trajectory:natural}/screenshots/{turn:natural}", show_picture, name="screenshot"
        ),
    ]


def show_rollout(request: Request) -> Response:
    view = _view(request)
    return _render(request, "rollout.html", view)


def show_turn(request: Request) -> Response:
    """Turns are counted from 1, as people do."""
    number = request.path_params["turn"]
    view = _view(request, turn_number=number)
    if not 1 <= number <= len(view.turns):
        raise HTTPException(
            404, f"rollout {view.facts.rollout.id} has {len(view.turns)} turns, none of number {number}"
        )
    return _render(request, "turn.html", view, turn=view.turns[number - 1])


def show_picture(request: Request) -> Response:
    """A screenshot as the environment took it. Only what the ledger refers to is served, and only as a picture.

    A run that begins anew in the same folder numbers its trajectories again: a browser keeps the picture, but asks.
    """
    run, number = viewed_run(request), request.path_params["turn"]
    with run.ledger.read() as connection:
        row = read_trajectory(connection, request.path_params["trajectory"])
    if row is None or not row.screenshots_blob:
        raise HTTPException(404, "there is no picture: none was taken, or the disk budget took it")
    headers = {"cache-control": "private, no-cache", "etag": f'"{row.screenshots_blob}-{number}"'}
    if request.headers.get("if-none-match") == headers["etag"]:
        return Response(status_code=304, headers=headers)
    try:
        turns = run.ledger.store.load(row.blob, row.screenshots_blob).turns
    except DamagedBlobError as error:
        raise HTTPException(404, f"the picture cannot be read: {error.what}") from error
    picture = turns[number - 1].observation.screenshot if 1 <= number <= len(turns) else None
    kind = media_type(picture) if picture else None
    if picture is None or kind is None:
        raise HTTPException(404, "there is no picture of this turn that is a PNG, JPEG or WebP")
    return Response(picture, media_type=kind, headers=headers)


def _view(request: Request, turn_number: int | None = None) -> RolloutView:
    run, number = viewed_run(request), request.path_params["rollout"]
    attempt = request.query_params.get("attempt")
    with run.ledger.read() as connection:
        facts = read_rollout(connection, number)
        if facts is None:
            raise HTTPException(404, f"this run has no rollout {number} yet")
        return view_rollout(run, connection, facts, _attempt(facts, attempt), turn_number=turn_number)


def _attempt(facts: RolloutFacts, asked: str | None) -> Any | None:
    """The attempt to show: the one whose number the address gives, else the one that counts."""
    if not asked:
        return facts.newest
    found = [row for row in facts.attempts if str(row.attempt) == asked]
    if not found:
        raise HTTPException(404, f"rollout {facts.rollout.id} has no stored attempt {asked}")
    return found[-1]


def _render(request: Request, template: str, view: RolloutView, **context: Any) -> Response:
    shown = {"view": view, "measures": MEASURES, "kinds": KINDS}
    return render(request, template, run=viewed_run(request), page="rollouts", **shown, **context)
