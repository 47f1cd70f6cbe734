"""Session of one side of a comparison: its start and its release are bounded, and it is released whatever happens."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from quartet import config
from quartet.env import make_environment
from quartet.env.base import EnvPool
from quartet.env.deadlines import Deadlines
from quartet.env.guarded import GuardedPool

LOG = logging.getLogger(__name__)


@asynccontextmanager
async def opened(env: config.Env, *, guarded: bool) -> AsyncIterator[Any]:
    """Give a new session, which is released with the block. Exceptions in the code of a guarded one are `EnvError`s."""
    pool, limits = make_environment(env).pool(env), Deadlines.of(env)
    pool = GuardedPool(pool) if guarded else pool
    try:
        async with limits.bounded("start", f"the start of a session of {env.name}"):
            session = await pool.acquire()
        try:
            yield session
        finally:
            await _release(pool, session, limits.release)
    finally:
        await pool.close()


async def _release(pool: EnvPool, session: Any, limit_seconds: float) -> None:
    """Release a session, whose `close` may hang as the call before it did."""
    release = asyncio.create_task(pool.release(session, healthy=False))
    if (await asyncio.wait([release], timeout=limit_seconds))[0]:
        return release.result()
    LOG.warning("close() of a session has not returned within %g s", limit_seconds)
    release.cancel()
    return None
