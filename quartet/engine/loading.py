"""Reading a policy beside the event loop, with a deadline: a file system that is away may take for ever."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

from quartet.errors import EngineError

T = TypeVar("T")


async def loaded(load: Callable[[], T], *, timeout_seconds: float) -> T:
    """The result of `load`, which runs in a thread of its own. Raises what it raises, and `EngineError` when it takes
    too long.

    The thread is a daemon: whoever stops waiting, for a deadline or a SIGTERM, leaves it behind and the process ends.
    """
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(load())
        except BaseException as error:  # noqa: BLE001  (whoever waits raises it)
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
            "is the disk or file system of the run's folder away? Raise the knob where it does take that long",
        ) from error
