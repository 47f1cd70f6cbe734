"""An HTTP server for the time of a test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from quartet.access.token import bearer

TOKEN = "token-of-a-test"
HEADERS = bearer(TOKEN) | {"Content-Type": "application/json"}


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[str]:
    """The address at which `app` is served inside the block; a client that hangs up cancels its request."""
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
