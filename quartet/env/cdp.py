"""Client of the Chrome DevTools Protocol over `--remote-debugging-pipe`.

Unlike a port, a pipe cannot be in use by another program or be reached from outside, and the browser ends when this
process's end of the pipe closes, even if this process is killed. Messages are JSON, separated by NUL. One pipe carries
many sessions, one per page (`flatten`); each answer contains the number of its call.

Failures are isolated per session: an undecodable or too long message, or too many events, fail only the session that
sent them.
"""

import asyncio
import logging
import os
import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgspec

from quartet.env.framing import MAX_MESSAGE_BYTES, TAIL_BYTES, Frame, Framer
from quartet.errors import EnvError

LOG = logging.getLogger(__name__)
Event = dict[str, Any]
CALL_TIMEOUT_SECONDS = 30.0
"""Timeout of a call to the browser, long enough for an overloaded machine. A crash or a closed pipe ends calls at
once."""

MAX_EVENT_BYTES = 4 << 20
"""Maximum bytes of events that a session may send between two calls; an episode sends a few kilobytes."""

_SENDER = re.compile(rb'"sessionId":"(\w+)"\}$')
"""Session id at the end of a message."""


class PageFaultError(EnvError):
    """A call failed because of the page: an exception in a script, or too many events. The browser is healthy."""


class Session:
    """Calls and events of one page, or of the browser itself (id "")."""

    def __init__(self, connection: "Connection", session_id: str) -> None:
        self._connection = connection
        self.session_id = session_id
        self._handlers: dict[str, list[Callable[[Event], None]]] = defaultdict(list)
        self._pending: set[asyncio.Future[dict[str, Any]]] = set()
        self._event_bytes = 0
        self.dead = ""
        """Reason why all further calls fail; empty while the session is healthy."""
        self._fault: type[EnvError] = EnvError

    async def call(
        self, method: str, *, timeout_seconds: float = CALL_TIMEOUT_SECONDS, **params: Any
    ) -> dict[str, Any]:
        """Call a method and return its answer. Raise `EnvError` if the browser reports an error, is gone, or times
        out."""
        if reason := self.dead or self._connection.closed:
            raise self._fault(f"{method}: {reason}")
        self._event_bytes = 0
        future = self._connection.send(self.session_id, method, params)
        self._pending.add(future)
        try:
            # Not `wait_for`: before Python 3.12 it returns an answer that arrives together with a cancellation, so the
            # limit of a step or a reset, which cancels, would have no effect.
            async with asyncio.timeout(timeout_seconds):
                return await future
        except TimeoutError:
            raise EnvError(f"{method}: the browser gave no answer within {timeout_seconds:g} s") from None
        finally:
            self._pending.discard(future)

    def on(self, event: str, handler: Callable[[Event], None]) -> None:
        """Call `handler(params)` at every event of this name."""
        self._handlers[event].append(handler)

    def expect(self, event: str) -> "asyncio.Future[dict[str, Any]]":
        """Return a future of the next event of this name. Call this before triggering the event.

        The future fails if the session dies.
        """
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)

        def settle(params: Event) -> None:
            if not future.done():
                future.set_result(params)

        self._handlers[event].append(settle)
        future.add_done_callback(lambda _: self._handlers[event].remove(settle))
        return future

    def handle(self, event: str, params: Event, num_bytes: int) -> None:
        """Pass an event to its handlers. Fail the session if too many events came since the last call."""
        self._event_bytes += num_bytes
        if self.session_id and self._event_bytes > MAX_EVENT_BYTES:
            self._connection.cut_off(self, f"the page sent more than {MAX_EVENT_BYTES} bytes of events")
        for handler in list(self._handlers.get(event, ())):
            handler(params)

    def fail(self, reason: str, fault: type[EnvError] = EnvError) -> None:
        """End the session: pending calls raise `fault` now, later calls when they are made."""
        if not self.dead:
            self.dead, self._fault = reason, fault
        for future in list(self._pending):
            if not future.done():
                future.set_exception(fault(reason))


class Connection(asyncio.Protocol):
    """Connection over the pipe. It numbers calls, and passes answers to callers and events to sessions."""

    def __init__(self) -> None:
        self.closed = ""
        """Reason why the pipe is closed; empty while it is open."""
        self._framer = Framer()
        self._calls: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._next_id = 0
        self._sessions: dict[str, Session] = {}
        self._writer: asyncio.WriteTransport | None = None
        self._reader: asyncio.ReadTransport | None = None
        self.browser = self.session("")

    @classmethod
    async def open(cls, read_fd: int, write_fd: int) -> "Connection":
        """Open a connection over this process's ends of the two pipes."""
        loop = asyncio.get_running_loop()
        connection = cls()
        connection._reader, _ = await loop.connect_read_pipe(lambda: connection, os.fdopen(read_fd, "rb", 0))
        writer, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(write_fd, "wb", 0))
        connection._writer = writer
        return connection

    def session(self, session_id: str) -> Session:
        self._sessions[session_id] = Session(self, session_id)
        return self._sessions[session_id]

    def forget(self, session: Session) -> None:
        self._sessions.pop(session.session_id, None)

    def send(self, session_id: str, method: str, params: dict[str, Any]) -> "asyncio.Future[dict[str, Any]]":
        """Send a call; the returned future may be dropped."""
        if self._writer is None:
            raise EnvError(f"{method}: the pipe to the browser is not open")
        self._next_id += 1
        message: dict[str, Any] = {"id": self._next_id, "method": method, "params": params}
        if session_id:
            message["sessionId"] = session_id
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        call_id = self._next_id
        self._calls[call_id] = future

        def forget(done: "asyncio.Future[dict[str, Any]]") -> None:
            self._calls.pop(call_id, None)
            if not done.cancelled():
                done.exception()  # retrieved, so that asyncio does not log it if no caller awaits the answer

        future.add_done_callback(forget)
        self._writer.write(msgspec.json.encode(message) + b"\0")
        return future

    def cut_off(self, session: Session, reason: str) -> None:
        """Fail a session and detach from it, which stops its events."""
        if not session.dead:
            LOG.warning("browser session %s failed: %s", session.session_id, reason)
            session.fail(reason, PageFaultError)
            self.send("", "Target.detachFromTarget", {"sessionId": session.session_id})

    def close(self, reason: str = "the browser was closed") -> None:
        """Close this process's ends of the pipes; the browser then ends. Every pending call raises `EnvError`."""
        self.closed = self.closed or reason
        for transport in (self._writer, self._reader):
            if transport is not None:
                transport.close()
        for session in self._sessions.values():
            session.fail(self.closed)

    def data_received(self, data: bytes) -> None:
        for frame in self._framer.feed(data):
            self._take(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self.close("the browser died")

    def _take(self, frame: Frame) -> None:
        """Dispatch a message. If it cannot be decoded, fail the session that sent it."""
        if not frame.whole:
            self._fail_sender(frame, f"the page sent a message of more than {MAX_MESSAGE_BYTES} bytes")
            return
        try:
            message = msgspec.json.decode(frame.data)
        except (ValueError, RecursionError) as error:  # malformed JSON, for example half of a surrogate pair
            self._fail_sender(frame, f"the page sent a message that cannot be decoded: {error}")
            return
        self._dispatch(message, len(frame.data))

    def _fail_sender(self, frame: Frame, problem: str) -> None:
        sender = _SENDER.search(frame.data[-TAIL_BYTES:])
        session = self._sessions.get(sender[1].decode()) if sender else None
        if session is None:
            LOG.warning("dropped a browser message without a session: %s", problem)
        else:
            self.cut_off(session, problem)

    def _dispatch(self, message: dict[str, Any], num_bytes: int) -> None:
        if "id" not in message:
            session = self._sessions.get(message.get("sessionId", ""))
            if session is not None:
                session.handle(message["method"], message.get("params", {}), num_bytes)
            return
        future = self._calls.get(message["id"])
        if future is None or future.done():
            return
        if error := message.get("error"):
            future.set_exception(EnvError(f"the browser rejected a call: {error.get('message')}"))
        else:
            future.set_result(message.get("result", {}))
