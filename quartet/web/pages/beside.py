"""Page with two rollouts side by side, turn by turn, typically a success and a failure of one group."""

from itertools import zip_longest

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from quartet.web.numbers import NaturalConvertor as NaturalConvertor  # `:natural` in the routes
from quartet.web.numbers import read_natural
from quartet.web.queries.rollout import read_rollout
from quartet.web.render import render
from quartet.web.rollout_view import RolloutView, view_rollout
from quartet.web.tokens import MEASURES
from quartet.web.viewed_run import viewed_run


def routes() -> list[Route]:
    return [Route("/runs/{run}/rollouts/{rollout:natural}/beside", show_beside, name="beside")]


def show_beside(request: Request) -> Response:
    """Show the rollout of the path beside the rollout that the query's `other` names."""
    other = read_natural(request, "other")
    if other is None:
        raise HTTPException(400, "the second rollout is missing: end the address with ?other=NUMBER")
    views = [_view(request, number) for number in (request.path_params["rollout"], other)]
    return render(
        request,
        "beside.html",
        run=viewed_run(request),
        page="rollouts",
        views=views,
        turns=list(zip_longest(*(view.turns for view in views))),
        measures=MEASURES,
    )


def _view(request: Request, number: int) -> RolloutView:
    run = viewed_run(request)
    with run.ledger.read() as connection:
        facts = read_rollout(connection, number, request.query_params.get("part"))
        if facts is None:
            raise HTTPException(404, f"this run has no rollout {number} yet")
        return view_rollout(run, connection, facts, facts.newest)
