"""Thread that executes an engine's work, one piece after another."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


class WorkThread:
    """Thread that can be abandoned. It is a daemon, so that the process can end although its work hangs; the process
    waits for the threads of a `ThreadPoolExecutor`."""

    def __init__(self, name: str, begin: Callable[[], None]) -> None:
        """Start the thread; `begin` is executed first."""
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._work.put(begin)
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def execute(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, or raise its exception. Work that was cancelled before it began is left out."""
        done: Future[T] = Future()

        def settle() -> None:
            if not done.set_running_or_notify_cancel():
                return
            try:
                done.set_result(work())
            except BaseException as error:  # noqa: BLE001  (raised in the waiting coroutine)
                done.set_exception(error)

        self._work.put(settle)
        return await asyncio.wrap_future(done)

    async def close(self, seconds: float) -> None:
        """End the thread after the work so far. After `seconds` it is abandoned."""
        self._work.put(None)
        await asyncio.to_thread(self._thread.join, max(seconds, 0.0))

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
