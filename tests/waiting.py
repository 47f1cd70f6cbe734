"""Wait for what other processes, threads or tasks do."""

import asyncio
import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], timeout_seconds: float = 240) -> None:
    """Call `condition` until it is true. Raise `TimeoutError` after `timeout_seconds`."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not true within {timeout_seconds:g} s")
        time.sleep(0.02)


async def until(condition: Callable[[], object], *tasks: asyncio.Task[object], timeout_seconds: float = 240) -> None:
    """Call `condition` until it is true, while other tasks run. Raise `TimeoutError` after `timeout_seconds`.

    Raise the error of one of `tasks`, which must go on until then.
    """
    async with asyncio.timeout(timeout_seconds):
        while not condition():
            for task in tasks:
                assert not task.done(), task.exception()
            await asyncio.sleep(0.005)
