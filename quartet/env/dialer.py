"""Connections of rollout workers to environment hosts: the host is chosen, and greets."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from ssl import SSLContext
from typing import TypeVar

from aiohttp import (
    ClientError,
    ClientSession,
    ClientTimeout,
    ClientWebSocketResponse,
    ClientWSTimeout,
    TCPConnector,
    WSMessage,
    WSMsgType,
    WSServerHandshakeError,
)
from msgspec import Struct

from quartet import __version__
from quartet.access.token import bearer
from quartet.env.protocol import StateData, encode, read_answer
from quartet.errors import EnvError, SetupError

T = TypeVar("T", bound=Struct)
RETRY_SECONDS = 0.1
AVOID_SECONDS = 10.0
"""Time for which a host that was full or did not answer is tried after the others."""
GRACE_SECONDS = 5.0
"""Margin over the host's own request timeout before the host is considered dead."""

CLOSE_WITHIN = ClientWSTimeout(ws_close=0.5)  # pyright: ignore[reportCallIssue]  (an untyped attrs class)


class ConnectionLostError(EnvError):
    """The host died or closed the connection."""


class Dialer:
    """Factory of connections to the current addresses of the hosts.

    A connection goes to the host with the fewest connections of this process. If that host is full or does not answer,
    the others are tried, and for `AVOID_SECONDS` the host comes last. A host releases the session of a silent client,
    so each connection is pinged every `ping_seconds`.
    """

    def __init__(
        self,
        urls: Callable[[], Collection[str]],
        token: str,
        connect_timeout_seconds: float,
        ping_seconds: float,
        tls: SSLContext | None = None,
    ) -> None:
        self._urls, self._connect_timeout_seconds, self._tls = urls, connect_timeout_seconds, tls
        self._ping_seconds = ping_seconds
        self._sockets: list[tuple[str, ClientWebSocketResponse]] = []
        self._dialing, self._failed_at = Counter[str](), dict[str, float]()
        self._headers = bearer(token)
        self._http: ClientSession | None = None
        self._pinging: asyncio.Task[None] | None = None

    async def dial(self) -> ClientWebSocketResponse:
        """Connect, retrying until the deadline. Raise `EnvError` with the last failure, or `SetupError` if a host runs
        another version of Quartet."""
        self._pinging = self._pinging or asyncio.create_task(self._ping())
        deadline = time.monotonic() + self._connect_timeout_seconds
        while True:
            try:
                return await self._dial_any()
            except EnvError as error:
                if time.monotonic() > deadline:
                    advice = "see `quartet status` and the log of the environment host"
                    raise EnvError(f"{error.what} (tried for {self._connect_timeout_seconds:g} s)", advice) from error
            await asyncio.sleep(RETRY_SECONDS)

    async def _dial_any(self) -> ClientWebSocketResponse:
        failure = EnvError("no environment host has started yet")
        for url in self._best_first():
            self._dialing[url] += 1
            try:
                socket = await self._dial_once(url)
            except EnvError as error:
                failure, self._failed_at[url] = error, time.monotonic()
            else:
                self._sockets.append((url, socket))
                return socket
            finally:
                self._dialing[url] -= 1
        raise failure

    def _best_first(self) -> list[str]:
        """Return the addresses of the hosts, sorted by recent failures and by the number of open connections."""
        self._sockets = [(url, socket) for url, socket in self._sockets if not socket.closed]
        connections = self._dialing + Counter(url for url, _ in self._sockets)
        avoided = {url for url, at in self._failed_at.items() if time.monotonic() - at < AVOID_SECONDS}
        return sorted(self._urls(), key=lambda url: (url in avoided, connections[url]))

    async def _dial_once(self, url: str) -> ClientWebSocketResponse:
        # No limit and no total timeout: each session has a connection, which lasts as long as its worker.
        self._http = self._http or ClientSession(
            timeout=ClientTimeout(total=None), headers=self._headers, connector=TCPConnector(limit=0)
        )
        socket: ClientWebSocketResponse | None = None
        greeted = False
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                socket = await self._http.ws_connect(
                    f"{url}/ws", timeout=CLOSE_WITHIN, max_msg_size=0, ssl=self._tls or True
                )
                await socket.send_str(encode("state"))
                state = read_reply(await socket.receive(), StateData)  # a full host answers with an error
            _check_version(url, state.quartet_version)
            greeted = True
            return socket
        except WSServerHandshakeError as error:
            raise EnvError(
                f"the environment host at {url} refuses the connection: HTTP status {error.status}"
            ) from error
        except (ClientError, OSError) as error:
            raise EnvError(f"no environment host answers at {url}: {str(error) or 'timeout'}") from error
        finally:
            if socket is not None and not greeted:
                await socket.close()

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(self._ping_seconds)
            for _, socket in self._sockets:
                with suppress(OSError):  # the next request raises it
                    await socket.ping()

    async def close(self) -> None:
        if self._pinging is not None:
            self._pinging.cancel()
        if self._http is not None:
            await self._http.close()


def _check_version(url: str, of_host: str) -> None:
    """Raise `SetupError` if the host runs another version of Quartet, whose messages may differ."""
    if of_host and of_host != __version__:
        raise SetupError(
            f"the environment host at {url} runs Quartet {of_host}, and this process runs Quartet {__version__}",
            "start all modules of a run from the same installation of Quartet",
        )


def read_reply(reply: WSMessage, answer_type: type[T]) -> T:
    """Decode an answer. Raise `ConnectionLostError` if there is none, and the errors of `read_answer`."""
    if reply.type is not WSMsgType.TEXT:
        raise ConnectionLostError("the environment host closed the connection")
    return read_answer(reply.data, answer_type, "the environment host")
