"""Connection to a server of OpenEnv: one session over a WebSocket, and the schema of its actions over HTTP.

The next message is awaited also between two requests, since aiohttp answers the server's pings only meanwhile. A server
closes a connection whose client does not answer them.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout, ClientWebSocketResponse, WSMessage, WSMsgType

from quartet.access.token import bearer
from quartet.access.variables import secret
from quartet.env.protocol import ErrorCode
from quartet.errors import EnvError

MAX_ANSWER_BYTES = 100 << 20
"""Maximum size of an answer, as in OpenEnv's own client."""
CONNECT_TIMEOUT_SECONDS = 10.0


class RejectedError(Exception):
    """The server found an action invalid; the session continues."""


class OpenEnvServer:
    """One session of a server, as OpenEnv's own clients have it."""

    def __init__(self, url: str, token_variable: str) -> None:
        """Describe the connection. The value of the environment variable is sent as a bearer token.

        Raise `SetupError` if it is not set.
        """
        self._url = url.rstrip("/")
        self._headers = bearer(secret("env.token_variable", token_variable))
        self._http: ClientSession | None = None
        self._socket: ClientWebSocketResponse | None = None
        self._next: asyncio.Task[WSMessage] | None = None
        self.action_schema: dict[str, Any] = {}

    async def open(self) -> None:
        """Connect and read the schema of actions, if there is no connection. Raise `EnvError` if that fails."""
        if self._socket is not None and not self._socket.closed:
            return
        await self.close()
        self._http = ClientSession(headers=self._headers, timeout=ClientTimeout(sock_connect=CONNECT_TIMEOUT_SECONDS))
        try:
            async with self._http.get(f"{self._url}/schema", raise_for_status=True) as answer:
                self.action_schema = (await answer.json())["action"]
            self._socket = await self._http.ws_connect(f"{self._url}/ws", max_msg_size=MAX_ANSWER_BYTES)
            self._next = asyncio.create_task(self._socket.receive())
        except (ClientError, OSError, TimeoutError, ValueError, LookupError) as error:
            await self.close()
            raise EnvError(f"no server of OpenEnv at {self._url}: {error}", "check env.url, and start it") from error

    async def ask(self, kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return the data of its answer.

        Raise `RejectedError` for an invalid action, `EnvError` for any other error and for a lost connection.
        """
        if self._socket is None or self._next is None:
            raise EnvError(f"{kind}: there is no connection to {self._url}", "call reset(task) first")
        try:
            await self._socket.send_json({"type": kind, "data": data})
            message = await self._next
            self._next = asyncio.create_task(self._socket.receive())
            answer = message.json() if message.type is WSMsgType.TEXT else None
        except (ClientError, OSError, ValueError) as error:
            raise EnvError(f"{kind}: the server at {self._url} failed: {error}") from error
        match answer:
            case {"type": "observation", "data": {"observation": dict()} as found}:
                return found
            case {"type": "error", "data": {"code": ErrorCode.VALIDATION_ERROR, "message": str(text), **more}}:
                raise RejectedError("; ".join([text, *map(_reason, more.get("errors", []))]))
            case {"type": "error", "data": {"code": code, "message": text}}:
                raise EnvError(f"{kind}: the server at {self._url} answered {code}: {text}", "read the server's log")
            case None:
                raise EnvError(f"{kind}: the server at {self._url} closed the connection", "read the server's log")
        raise EnvError(f"{kind}: the server at {self._url} does not speak OpenEnv's protocol: {answer!r:.100}")

    async def close(self) -> None:
        """End the session; safe to call twice."""
        socket, http, coming = self._socket, self._http, self._next
        self._socket = self._http = self._next = None
        if coming is not None:
            coming.cancel()
            await asyncio.wait([coming])
        if socket is not None:
            await socket.close()
        if http is not None:
            await http.close()


def _reason(error: Mapping[str, Any]) -> str:
    """Return one of pydantic's errors as text: the field and what is wrong with it."""
    return f"{'.'.join(map(str, error.get('loc', [])))}: {error.get('msg')}"
