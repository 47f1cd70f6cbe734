"""Pool of sessions in this process: a session is made when it is acquired, and closed when it is released."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from quartet.env.session_thread import SessionThread

if TYPE_CHECKING:
    from quartet.env.base import Env


class SessionPool:
    """`EnvPool` of at most `sessions` concurrent sessions."""

    def __init__(self, make_session: "Callable[[], Env]", sessions: int) -> None:
        self._make_session, self._free = make_session, asyncio.Semaphore(sessions)

    async def acquire(self) -> "Env":
        await self._free.acquire()
        try:
            return self._make_session()
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
