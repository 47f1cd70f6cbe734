"""Page "Timeline": what each module did at each time, and what it waited for."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from quartet.report.default_window import default_window
from quartet.telemetry.activities import ACTIVITIES, WAIT
from quartet.telemetry.slices import run_extent
from quartet.web.numbers import read_seconds
from quartet.web.render import render
from quartet.web.timeline import MOST_SECONDS, window
from quartet.web.viewed_run import viewed_run

DEFAULT_SECONDS = 60.0


def routes() -> list[Route]:
    return [
        Route("/runs/{run}/timeline", show_timeline, name="timeline"),
        Route("/runs/{run}/timeline/window", read_window, name="timeline_window"),
    ]


def show_timeline(request: Request) -> Response:
    run = viewed_run(request)
    return render(
        request,
        "timeline.html",
        run=run,
        page="timeline",
        extent=run_extent(run.run_dir),
        opening=default_window(run.run_dir, DEFAULT_SECONDS),
        running=run.running,
        activities=list(ACTIVITIES.values()),
        wait=WAIT,
        most_seconds=MOST_SECONDS,
        default_seconds=DEFAULT_SECONDS,
    )


def read_window(request: Request) -> Response:
    """Send the spans of the window that begins at `start` (Unix seconds) and lasts `seconds`, and the times of the
    run's first and newest records."""
    run = viewed_run(request)
    start, seconds = read_seconds(request, "start"), read_seconds(request, "seconds")
    if not 0 < seconds <= MOST_SECONDS:
        raise HTTPException(
            400, f"seconds={seconds:g}: a window must be longer than 0 s and at most {MOST_SECONDS:g} s"
        )
    return JSONResponse({**window(run.run_dir, start, seconds), "extent": run_extent(run.run_dir)})
