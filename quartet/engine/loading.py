"""Policy loading in a separate thread with a timeout, since an unreachable file system may block forever."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

from quartet.errors import EngineError

T = TypeVar("T")


async def loaded(load: Callable[[], T], *, timeout_seconds: float) -> T:
    """Run `load` in a separate thread and return its result. Raises its exception, or `EngineError` on timeout.

    The thread is a daemon, so that the process can end after a timeout or SIGTERM although the thread still runs.
    """
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(load())
        except BaseException as error:  # noqa: BLE001  (raised in the waiting coroutine)
            done.set_exception(error)

    Thread(target=run, name="engine-loading", daemon=True).start()
    deadline = asyncio.timeout(timeout_seconds)
    try:
        async with deadline:
            return await asyncio.wrap_future(done)
    except TimeoutError as error:
        if not deadline.expired():
            raise
        raise EngineError(
            f"loading a policy takes longer than engine.load_timeout_seconds = {timeout_seconds:g}",
            "check the file system of the run's folder; raise the setting if loading does take that long",
        ) from error
