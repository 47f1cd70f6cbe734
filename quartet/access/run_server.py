"""HTTP server for the programs of one run."""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Collection

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from quartet.access.pending import ACCEPT_BACKLOG, REQUEST_TIMEOUT_SECONDS, Pending
from quartet.access.place import THIS_MACHINE, Place
from quartet.access.rules import Refusal, refuse_client
from quartet.errors import SetupError

_CLIENT_ERRORS = (HttpProcessingError, ConnectionError)
_LOG = logging.getLogger(__name__)


def _shorten(record: logging.LogRecord) -> bool:
    """Log malformed requests and lost clients as one-line warnings: aiohttp logs a traceback for each."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, _CLIENT_ERRORS):
        record.levelno, record.levelname, record.exc_info = logging.WARNING, "WARNING", None
        record.msg = f"{record.msg}: {type(error).__name__}"
    return True


_LOG.addFilter(_shorten)


class RunServer:
    """Server that rejects requests by the rules of `refuse_client`, and closes connections that send none in time."""

    def __init__(
        self,
        app: web.Application,
        *,
        token: str,
        name: str,
        setting: str,
        place: Place = THIS_MACHINE,
        guests: Collection[str] = (),
    ) -> None:
        """Require `token`, or one of the tokens `guests`, for all requests to `app`. Raises `SetupError` if `token` is
        empty and other machines can connect.

        Errors contain `name`, and the names of the settings that begin with `setting`: `SETTING_host`, `SETTING_port`.
        """
        if not token and not place.is_local:
            raise SetupError(
                f"{name} would listen on {place.host} without a token, open to every machine that reaches it",
                f"set {setting}_host to a loopback address, or restore the file `token` of the run",
            )
        app.middlewares.insert(0, self._guard)
        self._token, self._guests = token, guests
        self._name, self._setting, self._place = name, setting, place
        # Cancels a handler when its client disconnects, also while it waits.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0, logger=_LOG)
        self._listener: asyncio.Server | None = None
        self._pending = Pending[web.RequestHandler](web.RequestHandler.force_close)

    async def start(self, port: int = 0) -> str:
        """Listen, on a free port if `port` is 0, and return the URL. Raises `SetupError` if the address is
        unavailable."""
        await self._runner.setup()
        tls = self._place.tls
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                self._new_connection,
                self._place.host,
                port,
                backlog=ACCEPT_BACKLOG,
                ssl=tls,
                ssl_handshake_timeout=REQUEST_TIMEOUT_SECONDS if tls else None,
            )
        except OSError as error:
            await self._runner.cleanup()
            raise self._unusable(port, error) from error
        return self._place.url(self._listener.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close all connections. Safe to call twice, and before `start`."""
        if self._listener is not None:
            self._listener.close()
        self._pending.close_all()
        await self._runner.cleanup()

    def _unusable(self, port: int, error: OSError) -> SetupError:
        reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        advice = f"set {self._setting}_host to an address of this machine, or to 0.0.0.0 for all of them"
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            advice = f"set {self._setting}_port to a free port from 1024 on, or to 0 for any free port"
        return SetupError(f"{self._name} cannot listen on {self._place.host}:{port}: {reason}", advice)

    def _new_connection(self) -> web.RequestHandler:
        assert self._runner.server is not None
        connection = self._runner.server()
        self._pending.add(connection)
        return connection

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        local = self._place.is_local
        if refusal := refuse_client(request.method, request.headers, self._token, guests=self._guests, local=local):
            return _refused(refusal)
        self._pending.admit(request.protocol)
        try:
            return await handler(request)
        except web.RequestPayloadError as error:
            return _refused(Refusal(400, f"the body cannot be read: {error}"))


def _refused(refusal: Refusal) -> web.Response:
    """Return an error in the form of OpenAI's API, and close the connection, since the request's body is not read."""
    error = {"message": refusal.message, "type": "refused", "code": refusal.status}
    response = web.json_response({"error": error}, status=refusal.status)
    response.force_close()
    return response
