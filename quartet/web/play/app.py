"""Web application of `quartet env play`: the page, its pictures, and requests that act."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from quartet.errors import ConfigError
from quartet.types import Observation
from quartet.web.app import STATIC, explain_bug, explain_error, explain_http
from quartet.web.numbers import NaturalConvertor as NaturalConvertor  # `:natural` in the routes
from quartet.web.pictures import media_type
from quartet.web.play.lines import lines_of
from quartet.web.play.player import Player
from quartet.web.pointer_marks import marks_of
from quartet.web.render import render
from quartet.web.security import Guard

MAX_BODY_BYTES = 65_536
ENDINGS = ("done", "infeasible")
"""Actions without a target, which the page offers as buttons if the environment's grammar has them."""


def build_play_app(player: Player, *, token: str, family: str, seed: int) -> Guard:
    """Return the application, which begins an episode at its start. It answers only clients that have the token."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await player.begin(family, seed)
        yield
        await player.close()

    app = Starlette(
        routes=[
            Route("/", _show),
            Route("/pictures/{place:natural}", _show_picture, name="play_picture"),
            Route("/act", _act, methods=["POST"]),
            Route("/begin", _begin, methods=["POST"]),
            Mount("/static", StaticFiles(directory=STATIC), name="static"),
        ],
        exception_handlers={HTTPException: explain_http, ConfigError: explain_error, Exception: explain_bug},
        lifespan=lifespan,
    )
    app.state.player, app.state.runs = player, {}
    return Guard(app, token, methods=("GET", "HEAD", "POST"))


async def _show(request: Request) -> Response:
    player = _player(request)
    episode = player.episode
    seen = episode.observation or Observation(goal="", text="")
    return render(
        request,
        "play.html",
        player=player,
        episode=episode,
        seen=seen,
        lines=lines_of(seen),
        marks=marks_of(episode.turns[-1].actions) if episode.turns else [],
        endings=[name for name in ENDINGS if f"`{name}`" in player.environment.grammar],
        families=player.families,
    )


async def _show_picture(request: Request) -> Response:
    """Send a picture of the newest observation, by its place, from 1."""
    seen, place = _player(request).episode.observation, request.path_params["place"]
    pictures = seen.pictures if seen else []
    picture = pictures[place - 1].data if 1 <= place <= len(pictures) else b""
    kind = media_type(picture)
    if kind is None:
        raise HTTPException(404, "the observation has no such picture that is a PNG, JPEG or WebP")
    return Response(picture, media_type=kind)


async def _act(request: Request) -> Response:
    """Apply the response `action` as the turn `turn` of the episode `episode`."""
    fields = await _fields(request)
    episode, turn, action = (fields.get(name, "") for name in ("episode", "turn", "action"))
    if not (episode.isdecimal() and turn.isdecimal() and action):
        raise HTTPException(
            400, "send the fields `episode` and `turn`, the numbers on the page, and `action`, a response"
        )
    await _player(request).act(int(episode[:9]), int(turn[:9]), action.replace("\r\n", "\n"))
    return RedirectResponse("/", 303)


async def _begin(request: Request) -> Response:
    """Begin an episode of the task `family` with the seed `seed`."""
    fields = await _fields(request)
    seed = fields.get("seed", "")
    if not seed.isdecimal() or len(seed) > 18:
        raise HTTPException(400, f"the seed {seed[:20]!r} is no whole number from 0 on of at most 18 digits")
    player, family = _player(request), fields.get("family", "")
    try:
        player.require(family)
    except ConfigError as error:
        raise HTTPException(400, str(error)) from error
    await player.begin(family, int(seed))
    return RedirectResponse("/", 303)


async def _fields(request: Request) -> dict[str, str]:
    """Return the fields of a form."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413, f"a form may have at most {MAX_BODY_BYTES} bytes")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True))
    except UnicodeDecodeError as error:
        raise HTTPException(400, "the form is not UTF-8") from error


def _player(request: Request) -> Player:
    return request.app.state.player
