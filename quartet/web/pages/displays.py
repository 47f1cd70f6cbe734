"""Page "Displays": what each environment session shows at present, refreshed every two seconds."""

import time

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from quartet.telemetry.displays import Display, read_display, read_displays
from quartet.web.pictures import media_type
from quartet.web.render import render
from quartet.web.viewed_run import viewed_run


def routes() -> list[Route]:
    return [
        Route("/runs/{run}/displays", show_displays, name="displays"),
        Route("/runs/{run}/displays/{host}/{lane:path}", show_display_picture, name="display_picture"),
    ]


def show_displays(request: Request) -> Response:
    run = viewed_run(request)
    displays = read_displays(run.run_dir)
    return render(
        request,
        "displays.html",
        run=run,
        page="displays",
        running=run.running,
        sessions=run.recipe.sessions,
        displays=[(display, _rollout(display)) for display in displays],
        now=time.time(),
    )


def show_display_picture(request: Request) -> Response:
    """Send the newest picture of one session."""
    asked = request.path_params
    display = read_display(viewed_run(request).run_dir, asked["host"], asked["lane"])
    picture = display.picture if display else b""
    kind = media_type(picture)
    if kind is None:
        raise HTTPException(404, "this session shows no picture that is a PNG, JPEG or WebP")
    return Response(picture, media_type=kind)


def _rollout(display: Display) -> int | None:
    """Return the id of the session's rollout; None if the client did not name it."""
    kind, _, number = display.trace.partition(" ")
    rollout, _, _ = number.partition(".")
    return int(rollout) if kind == "rollout" and rollout.isdecimal() else None
