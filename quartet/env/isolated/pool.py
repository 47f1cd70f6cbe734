"""Pool of sessions in child processes. A process is kept for the next episode if its last one was healthy."""

import asyncio

from quartet import config
from quartet.env.base import Env
from quartet.env.isolated.session import IsolatedSession


class IsolatedPool:
    """`EnvPool` of at most `env.sessions` processes, started on first use."""

    def __init__(self, env: config.Env) -> None:
        self._env = env
        self._free = asyncio.Semaphore(env.sessions)
        self._idle: list[IsolatedSession] = []

    async def acquire(self) -> Env:
        """Return a free session; wait if all are in use. Raise `SetupError` if its process cannot make it."""
        await self._free.acquire()
        try:
            while self._idle:
                session = self._idle.pop()
                if session.healthy:
                    return session
                await session.close()
            return await self._started()
        except BaseException:
            self._free.release()
            raise

    async def _started(self) -> IsolatedSession:
        session = IsolatedSession(self._env)
        try:
            await session.start()
        except BaseException:
            await session.close()
            raise
        return session

    async def release(self, env: Env, *, healthy: bool) -> None:
        """Release a session. The process of an unhealthy one is killed with all that it started."""
        assert isinstance(env, IsolatedSession)
        try:
            if healthy and env.healthy:
                self._idle.append(env)
            else:
                await env.close()
        finally:
            self._free.release()

    async def close(self) -> None:
        """End all processes; safe to call twice."""
        while self._idle:
            await self._idle.pop().close()
