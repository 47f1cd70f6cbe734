"""Pool of sessions in this process: a session is made when it is acquired, and closed when it is released."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from quartet.env.session_thread import SessionThread

if TYPE_CHECKING:
    from quartet.env.base import Env

LOG = logging.getLogger(__name__)


class SessionPool:
    """`EnvPool` of at most `sessions` concurrent sessions."""

    def __init__(self, make_session: "Callable[[], Env]", sessions: int) -> None:
        self._make_session, self._free = make_session, asyncio.Semaphore(sessions)
        self._discarding: set[asyncio.Task[None]] = set()

    async def acquire(self) -> "Env":
        """Make a session in a thread, since its constructor may block.

        If the call is cancelled meanwhile, the session keeps its place until it has been made and closed.
        """
        await self._free.acquire()
        making = asyncio.create_task(self._made())
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            discarding = asyncio.create_task(self._discard(making))
            self._discarding.add(discarding)
            discarding.add_done_callback(self._discarding.discard)
            raise
        except BaseException:
            self._free.release()
            raise

    async def release(self, env: "Env", *, healthy: bool) -> None:
        """Close the session. A `close` that is a plain function, which may block, is called in a thread."""
        thread = SessionThread()
        try:
            await thread.call(env.close)
        finally:
            thread.close()
            self._free.release()

    async def close(self) -> None:
        """Do nothing: sessions are closed when they are released."""

    async def _made(self) -> "Env":
        thread = SessionThread()
        try:
            return await thread.call(self._make_session)
        finally:
            thread.close()

    async def _discard(self, making: "asyncio.Task[Env]") -> None:
        """Close a session that is made after its acquisition was cancelled."""
        await asyncio.wait([making])
        if making.cancelled() or making.exception() is not None:
            self._free.release()
            return
        try:
            await self.release(making.result(), healthy=False)
        except Exception:
            LOG.exception("close() of a session failed that was made after its start was cancelled")
