"""Client of the environment hosts for rollout workers: an `EnvPool` over WebSocket.

Sessions are dealt over the hosts. Hosts may join, leave, or restart on another port, so their addresses are read at
every connection. If a connection is lost between two episodes, the next `reset` opens a new one, perhaps to another
host. If it is lost within an episode, an `EnvError` is raised.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from ssl import SSLContext
from typing import TypeVar

from aiohttp import ClientError, ClientWebSocketResponse, WSMsgType
from msgspec import Struct

from quartet.env.base import Env
from quartet.env.deadlines import RELEASE_SECONDS, START_SECONDS
from quartet.env.dialer import GRACE_SECONDS, ConnectionLostError, Dialer, read_reply
from quartet.env.protocol import ObservationData, ResetData, SnapshotData, StepData, encode
from quartet.errors import EnvError
from quartet.telemetry.trace import current_trace
from quartet.types import Action, Observation, StepResult, Task

T = TypeVar("T", bound=Struct)


class RemoteEnv:
    """One session of the host. If a request gets no answer in time, the connection is closed, so that a late answer is
    not mistaken for the answer to a later request."""

    def __init__(self, dialer: Dialer, request_timeout_seconds: float, reset_timeout_seconds: float) -> None:
        self._dialer = dialer
        # After a step that exceeded its limit, the host releases the environment before it answers with the reason.
        self._timeout_seconds = request_timeout_seconds + RELEASE_SECONDS + GRACE_SECONDS
        self._reset_timeout_seconds = reset_timeout_seconds + GRACE_SECONDS
        self._socket: ClientWebSocketResponse | None = None

    async def connect(self) -> None:
        """Connect if there is no connection. Raise `EnvError` if the host cannot be reached."""
        if self._socket is None or self._socket.closed:
            self._socket = await self._dialer.dial()

    async def reset(self, task: Task) -> Observation:
        """Start an episode, on a new connection if the old one was lost."""
        return await self._begin(task)

    async def restore(self, task: Task, snapshot: bytes) -> Observation:
        """Start an episode in a state that a session of any host stored, instead of `reset`."""
        return await self._begin(task, snapshot)

    async def step(self, action: str) -> StepResult:
        """Apply one action. Raise `EnvError` also if the connection was lost, since the episode cannot be continued."""
        answer = await self._request("step", ObservationData, StepData(action=action))
        return answer.step_result()

    async def act(self, actions: Sequence[Action]) -> StepResult:
        """Perform typed actions. Raise the same errors as `step`."""
        answer = await self._request("step", ObservationData, StepData(action="", actions=list(actions)))
        return answer.step_result()

    async def snapshot(self) -> bytes:
        """Return the state of the running episode. Raise the same errors as `step`."""
        return (await self._request("snapshot", SnapshotData)).snapshot

    async def close(self) -> None:
        """Close the connection; the host then releases the session."""
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()

    async def _begin(self, task: Task, snapshot: bytes | None = None) -> Observation:
        data = ResetData(
            env=task.env,
            family=task.family,
            seed=task.seed,
            params=task.params,
            episode_id=task.key,
            trace=current_trace(),
            snapshot=snapshot,
        )
        await self.connect()
        try:
            answer = await self._request("reset", ObservationData, data)
        except ConnectionLostError:
            await self.connect()
            answer = await self._request("reset", ObservationData, data)
        return answer.observation

    async def _request(self, kind: str, answer_type: type[T], data: Struct | None = None) -> T:
        if self._socket is None or self._socket.closed:
            raise ConnectionLostError(f"{kind}: not connected to the environment host")
        answered, seconds = False, self._reset_timeout_seconds if kind == "reset" else self._timeout_seconds
        try:
            await self._socket.send_str(encode(kind, data))
            reply = await self._socket.receive(timeout=seconds)
            answered = reply.type is WSMsgType.TEXT
        except TimeoutError as error:
            raise EnvError(f"{kind}: the environment host did not answer within {seconds:g} s") from error
        except (ClientError, OSError) as error:
            raise ConnectionLostError(f"{kind}: the environment host closed the connection ({error})") from error
        finally:
            if not answered:
                await self.close()
        return read_reply(reply, answer_type)


class RemoteEnvPool:
    """Pool of at most `capacity` sessions of the hosts at `urls()`, connected on first use and reused.

    `request_timeout_seconds` is the host's limit of a step. `reset_timeout_seconds` includes the start of a session in
    the host. `ping_seconds` must be less than the host's limit for a silent client.
    """

    def __init__(
        self,
        urls: Callable[[], Collection[str]],
        capacity: int,
        *,
        token: str = "",
        request_timeout_seconds: float = 20.0,
        reset_timeout_seconds: float | None = None,
        connect_timeout_seconds: float = 15.0,
        ping_seconds: float = 60.0,
        tls: SSLContext | None = None,
    ) -> None:
        self._dialer = Dialer(urls, token, connect_timeout_seconds, ping_seconds, tls)
        reset_seconds = reset_timeout_seconds or START_SECONDS + request_timeout_seconds
        self._timeouts = request_timeout_seconds, reset_seconds
        self._capacity, self._surplus = capacity, 0
        self._free = asyncio.Semaphore(capacity)
        self._idle: list[RemoteEnv] = []

    async def resize(self, capacity: int) -> None:
        """Change the number of sessions. Sessions in use beyond it are closed when they are released."""
        while self._capacity < capacity:
            self._capacity += 1
            if self._surplus:
                self._surplus -= 1
            else:
                self._free.release()
        while self._capacity > capacity:
            self._capacity -= 1
            if self._free.locked():
                self._surplus += 1
            else:
                await self._free.acquire()
                if self._idle:
                    await self._idle.pop().close()

    async def acquire(self) -> Env:
        await self._free.acquire()
        env = self._idle.pop() if self._idle else RemoteEnv(self._dialer, *self._timeouts)
        try:
            await env.connect()
        except BaseException:
            self._free.release()
            raise
        return env

    async def release(self, env: Env, *, healthy: bool) -> None:
        try:
            if healthy and isinstance(env, RemoteEnv) and not self._surplus:
                self._idle.append(env)
            else:
                await env.close()
        finally:
            if self._surplus:
                self._surplus -= 1
            else:
                self._free.release()

    async def close(self) -> None:
        for env in self._idle:
            await env.close()
        self._idle.clear()
        await self._dialer.close()
