"""Environment host: serve the sessions of one environment over OpenEnv's WebSocket protocol.

A connection to `/ws` is one session; `/health` returns the number of sessions, `/schema` the form of messages. When
the connection closes, breaks, or is silent for too long, its session is released at once, even during a step, so that a
killed worker does not leak an environment.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import msgspec
from aiohttp import WSMsgType, web

from quartet.access.place import THIS_MACHINE, Place, server_tls
from quartet.access.rules import given_token
from quartet.access.run_server import RunServer
from quartet.access.token import run_token
from quartet.config import Recipe
from quartet.env import make_pool
from quartet.env.base import EnvPool
from quartet.env.deadlines import Deadlines
from quartet.env.guarded import GuardedPool
from quartet.env.protocol import MAX_REQUEST_BYTES, ErrorCode, ErrorData, StateData, StepData, encode
from quartet.env.quotas import Quotas
from quartet.env.session import HostedSession
from quartet.errors import SetupError
from quartet.ledger import Ledger
from quartet.telemetry.displays import Displays
from quartet.telemetry.lanes import Lanes
from quartet.telemetry.presence import Presence
from quartet.telemetry.record import Recorder
from quartet.types import Observation

LOG = logging.getLogger(__name__)
REPORT_SECONDS = 0.5
DEADLINES, NO_QUOTAS = Deadlines(), Quotas()
CLOSE_TIMEOUT_SECONDS = 1.0
"""Timeout of a client's answer to the closing of its connection."""


class EnvHost:
    """The server of a pool of sessions. `url` is set by `start`; `deadlines` are those of later connections."""

    def __init__(
        self,
        pool: EnvPool,
        *,
        name: str,
        capacity: int,
        token: str,
        deadlines: Deadlines = DEADLINES,
        idle_timeout_seconds: float = 600.0,
        recorder: Recorder | None = None,
        displays: Displays | None = None,
        place: Place = THIS_MACHINE,
        families: Sequence[str] = (),
        quotas: Quotas = NO_QUOTAS,
    ) -> None:
        """Describe the host. It serves tasks of `families` only, if there are any; a reset without a family, as of
        OpenEnv's clients, starts a task of the first one.

        Clients with a token of `quotas` are served too, within their quota.
        """
        self._pool, self._name, self._capacity = GuardedPool(pool), name, capacity
        self._families, self._quotas = families, quotas
        self.deadlines = deadlines
        self._idle_timeout_seconds = idle_timeout_seconds
        self._recorder, self._lanes, self._displays = recorder, Lanes("session"), displays
        app = web.Application()
        routes = {"/ws": self._serve, "/health": self._health, "/schema": self._schema}
        app.add_routes([web.get(path, handler) for path, handler in routes.items()])
        self._server = RunServer(
            app, token=token, name="the environment host", setting="runtime.env", place=place, guests=quotas.tokens
        )
        self._handlers: set[asyncio.Task[object]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self.url = ""

    @property
    def sessions(self) -> int:
        """Number of sessions of connected clients, and of clients that left while their session still ends."""
        return len(self._handlers) + len(self._ending)

    async def start(self, port: int = 0) -> None:
        """Listen; port 0 picks a free port. Raises `SetupError` if the address is unavailable."""
        self.url = await self._server.start(port)

    async def stop(self) -> None:
        """Release every session within the limit, close the connections, then close the pool. Safe to call twice."""
        for handler in self._handlers:
            handler.cancel()
        await self._server.stop()
        if self._ending:
            for late in (await asyncio.wait(self._ending, timeout=self.deadlines.release))[1]:
                late.cancel()
        await self._pool.close()

    async def _health(self, _: web.Request) -> web.Response:
        counts = {"sessions": self.sessions, "capacity": self._capacity}
        return web.json_response({"status": "healthy", "env": self._name, **counts})

    async def _schema(self, _: web.Request) -> web.Response:
        """Return the JSON Schemas of messages under OpenEnv's names for them."""
        kinds = {"action": StepData, "observation": Observation, "state": StateData}
        return web.json_response({name: _schema_of(kind) for name, kind in kinds.items()})

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(timeout=CLOSE_TIMEOUT_SECONDS, max_msg_size=MAX_REQUEST_BYTES)
        await socket.prepare(request)
        token = given_token(request.headers)
        full = f"all {self._capacity} sessions are taken" if self.sessions >= self._capacity else ""
        if message := full or self._quotas.refusal(token):
            await socket.send_str(encode("error", ErrorData(message=message, code=ErrorCode.CAPACITY_REACHED)))
            await socket.close()
            return socket
        handler = asyncio.current_task()
        assert handler is not None
        with self._lanes.take() as lane:
            session = HostedSession(
                self._pool, self.deadlines, self._recorder, lane, self._displays, self._families, self._name
            )
            self._handlers.add(handler)
            self._quotas.take(token)
            session.prepare()
            try:
                await self._converse(socket, session)
            finally:
                # A client that has gone cancels this handler, but its session must end all the same.
                ending = asyncio.create_task(session.close())
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)
                ending.add_done_callback(lambda _: self._quotas.free(token))
                self._handlers.discard(handler)
                await asyncio.shield(ending)
        await socket.close()
        return socket

    async def _converse(self, socket: web.WebSocketResponse, session: HostedSession) -> None:
        """Answer requests in order until the client disconnects, sends `close`, or is silent for too long."""
        while True:
            try:
                message = await socket.receive(timeout=self._idle_timeout_seconds)
            except TimeoutError:
                LOG.warning("a session was idle for %.0f s: released", self._idle_timeout_seconds)
                return
            if message.type is not WSMsgType.TEXT:
                return
            answer = await session.answer(message.data)
            if answer is None:
                return
            await socket.send_str(answer)


def _schema_of(kind: type[msgspec.Struct]) -> dict[str, object]:
    """Return the JSON Schema of a record, whose own fields are at the top, as pydantic writes it."""
    (top,), parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    return {**parts[top["$ref"].rpartition("/")[2]], "$defs": parts}


async def run_env_host(recipe: Recipe, run_dir: Path, stop: asyncio.Event, module: str = "env") -> None:
    """Run the environment host named `module` (`Recipe.env_modules`) as a process until `stop` is set.

    Raises `SetupError` if it cannot start.
    """
    with closing(Ledger.open(run_dir)) as ledger, Recorder(run_dir, module) as recorder:
        pool, runtime = make_pool(recipe.env), recipe.runtime
        host = EnvHost(
            pool,
            name=recipe.env.name,
            capacity=recipe.env.sessions,
            token=run_token(run_dir),
            deadlines=Deadlines.of(recipe.env),
            # A worker pings its sessions more often, also while a rollout waits for its turn.
            idle_timeout_seconds=recipe.rollout.episode_timeout_seconds,
            recorder=recorder,
            displays=Displays(run_dir, module),
            place=Place(runtime.env_host, server_tls(runtime.tls.certificate, runtime.tls.key)),
        )
        try:
            # An environment that cannot run at all (no browser) ends this process with advice, before a rollout fails.
            await try_out(pool, host.deadlines)
            await host.start(runtime.env_port)
            capacity = recipe.env.sessions
            presence = Presence(ledger.modules, module, url=host.url, capacity=capacity, recorder=recorder)
            await _report(host, capacity, presence, stop)
        finally:
            await host.stop()


async def try_out(pool: EnvPool, limits: Deadlines) -> None:
    """Start one session and release it. Raise `SetupError` if one of the two exceeds its limit."""
    try:
        async with asyncio.timeout(limits.start):
            env = await pool.acquire()
    except TimeoutError as error:
        raise SetupError(
            f"no session of the environment started within {limits.start:g} s",
            "mend the environment, or raise env.start_timeout_seconds",
        ) from error
    if not await limits.releases(pool, env, healthy=True):
        raise SetupError(
            f"close() of a session of the environment has not returned within {limits.release:g} s",
            "mend the environment: a session that is never released keeps its place on the host",
        )


async def _report(host: EnvHost, sessions: int, presence: Presence, stop: asyncio.Event) -> None:
    """Report the host's state to the ledger until `stop` is set."""
    while not stop.is_set():
        if host.sessions:
            presence.working(f"serving {host.sessions} of {sessions} sessions")
        else:
            presence.waits("clients", "a rollout worker connects")
        presence.beat()
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), REPORT_SECONDS)
