"""Session of one side of a comparison: its start and its release are bounded, and it is released whatever happens."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from quartet import config
from quartet.env import make_pool
from quartet.env.deadlines import Deadlines
from quartet.env.guarded import GuardedPool

LOG = logging.getLogger(__name__)


@asynccontextmanager
async def opened(env: config.Env, *, guarded: bool) -> AsyncIterator[Any]:
    """Give a new session, which is released with the block. Exceptions in the code of a guarded one are `EnvError`s."""
    pool, limits = make_pool(env), Deadlines.of(env)
    pool = GuardedPool(pool) if guarded else pool
    try:
        async with limits.bounded("start", f"the start of a session of {env.name}"):
            session = await pool.acquire()
        try:
            yield session
        finally:
            if not await limits.releases(pool, session, healthy=False):  # it may hang as the call before it did
                LOG.warning("close() of a session has not returned within %g s", limits.release)
    finally:
        await pool.close()
