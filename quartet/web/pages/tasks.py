"""Page "Tasks": success, rollouts and outcomes of groups by task family; and a page about one family."""

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from quartet.web.numbers import read_natural
from quartet.web.queries.families import list_groups
from quartet.web.queries.tasks import GROUPS_PER_POINT, NEWEST_GROUPS, family_rows, shown_evaluations, why_dropped
from quartet.web.render import render
from quartet.web.sparkline import path_of
from quartet.web.viewed_run import ViewedRun, viewed_run


def routes() -> list[Route]:
    return [
        Route("/runs/{run}/tasks", show_tasks, name="tasks"),
        Route("/runs/{run}/family", show_family, name="family"),
    ]


def show_tasks(request: Request) -> Response:
    run = viewed_run(request)
    with run.ledger.read() as connection:
        rows = family_rows(connection, run.recipe.env.name, run.ledger.policy)
        tags = shown_evaluations(connection)
    return render(
        request,
        "tasks.html",
        run=run,
        page="tasks",
        rows=rows,
        tags=tags,
        **_of_families(run),
    )


def show_family(request: Request) -> Response:
    """Show one family. Its name is in the query, not in the path, since it may contain any character, even a slash."""
    run, family = viewed_run(request), request.query_params.get("name", "")
    with run.ledger.read() as connection:
        rows = family_rows(connection, run.recipe.env.name, run.ledger.policy, only=family, points=96)
        if not rows:
            raise HTTPException(404, f"the run has neither groups nor held-out episodes of the family {family!r}")
        groups = list_groups(connection, family, read_natural(request, "older_than"))
        tags = shown_evaluations(connection)
    return render(
        request,
        "family.html",
        run=run,
        page="tasks",
        row=rows[0],
        tags=tags,
        groups=groups,
        why=why_dropped,
        **_of_families(run),
    )


def _of_families(run: ViewedRun) -> dict[str, Any]:
    """Return what both pages show about families of the run."""
    return {
        "newest_groups": NEWEST_GROUPS,
        "groups_per_point": GROUPS_PER_POINT,
        "policy": run.ledger.policy,
        "policies": run.ledger.trained,
        "train_step": run.ledger.batches.train_step(),
        "path_of": path_of,
        "replays": run.recipe.replay.name != "none",
    }
