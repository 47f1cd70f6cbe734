"""Thread of one session whose methods are plain functions, so that a blocking call does not block other sessions.

A session with coroutines runs in the event loop instead.
"""

import asyncio
import inspect
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from quartet.fault import place_of

Call = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]


class SessionThread:
    """Thread that runs one call after the other, started at the first call of a plain function. If a call never
    returns, the process can still exit."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a coroutine function in the event loop, and a plain function, which may block, in the thread.

        Return the result. If a call in the thread is cancelled, raise `CancelledError` that names the source line that
        the function is executing.
        """
        if inspect.iscoroutinefunction(function):
            return await function(*arguments)
        if self._thread is None:
            self._thread = threading.Thread(target=_work, args=(self._calls,), name="session", daemon=True)
            self._thread.start()
        loop, thread = asyncio.get_running_loop(), self._thread
        future: asyncio.Future[Any] = loop.create_future()
        self._calls.put((loop, future, function, arguments))
        try:
            answer = await future
        except asyncio.CancelledError:
            raise asyncio.CancelledError(_place(thread)) from None
        return await answer if inspect.isawaitable(answer) else answer

    def close(self) -> None:
        """End the thread, if there is one, once its current call has returned."""
        self._calls.put(None)
        self._calls, self._thread = SimpleQueue(), None


def _work(calls: "SimpleQueue[Call | None]") -> None:
    while call := calls.get():
        loop, future, function, arguments = call
        result, error = None, None
        try:
            result = function(*arguments)
        except StopIteration as raised:  # futures reject it; coroutines convert it in the same way
            error = RuntimeError(f"{function.__name__} raised StopIteration").with_traceback(raised.__traceback__)
        except BaseException as raised:  # noqa: BLE001  (raised again in the caller)
            error = raised
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(_settle, future, result, error)


def _place(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return place_of(traceback.extract_stack(frame)).strip()


def _settle(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
