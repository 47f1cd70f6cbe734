"""Web application of the dashboard: pages, static files, error pages, security."""

import importlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from quartet.errors import QuartetError
from quartet.web.pages import MODULES
from quartet.web.render import render
from quartet.web.security import Guard
from quartet.web.viewed_run import open_runs

STATIC = Path(__file__).parent / "static"


def build_app(run_dirs: Sequence[Path], *, token: str | None = None) -> Guard:
    """Return the application that shows these runs.

    With a `token`, the application answers all clients that have the token; without it, only clients on this machine.
    Folders that cannot be read are listed with their errors. Raises `LedgerError` if no folder can be read.
    """
    runs, problems = open_runs(run_dirs)
    pages = [route for name in MODULES for route in importlib.import_module(f"quartet.web.pages.{name}").routes()]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        for run in runs.values():
            run.close()

    app = Starlette(
        routes=[
            Route("/runs/{run}", _first_page),
            *pages,
            Mount("/static", StaticFiles(directory=STATIC), name="static"),
        ],
        exception_handlers={HTTPException: explain_http, QuartetError: explain_error, Exception: explain_bug},
        lifespan=lifespan,
    )
    app.state.runs, app.state.problems = runs, problems
    return Guard(app, token)


async def _first_page(request: Request) -> Response:
    run = request.path_params["run"]
    return RedirectResponse(request.url_for("run", run=run).path)


async def explain_http(request: Request, error: Exception) -> Response:
    """Return the page for a request that cannot be answered."""
    assert isinstance(error, HTTPException)
    return _explained(request, error.status_code, error.detail, "")


async def explain_error(request: Request, error: Exception) -> Response:
    """Return the page for one of Quartet's own errors."""
    assert isinstance(error, QuartetError)
    return _explained(request, 500, error.what, error.advice)


async def explain_bug(request: Request, error: Exception) -> Response:
    """Return the page for an error that Quartet does not expect; the server logs the traceback."""
    what = f"this page failed: {type(error).__name__}"
    return _explained(request, 500, what, "report this bug with the traceback in the terminal of this server")


def _explained(request: Request, status_code: int, what: str, advice: str) -> Response:
    """Return the error as a page, or as JSON if a script of the dashboard sent the request."""
    if request.headers.get("accept") == "application/json":
        return JSONResponse({"what": what, "advice": advice}, status_code)
    return render(request, "error.html", status_code=status_code, what=what, advice=advice)
