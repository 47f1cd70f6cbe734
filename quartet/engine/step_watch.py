"""Watchdog of the step thread: a process that responds while its steps hang must not count as healthy."""

import asyncio
import time
from concurrent.futures import Future
from typing import TypeVar

from quartet.errors import EngineError

LOOK_SECONDS = 0.5

T = TypeVar("T")


class StepWatch:
    """Watchdog that the step thread writes and any other thread reads."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._busy_since: float | None = None

    def begins(self) -> None:
        """Record the start of a step, or of a command between two steps."""
        self._busy_since = time.monotonic()

    def sleeps(self) -> None:
        """Record that the thread waits for the next command; this wait has no timeout."""
        self._busy_since = None

    @property
    def seconds_left(self) -> float:
        """Seconds until the current work counts as hung; at most `timeout_seconds`."""
        since = self._busy_since
        return self._timeout_seconds if since is None else self._timeout_seconds - (time.monotonic() - since)

    def raise_if_hung(self) -> None:
        """Raise `EngineError` if the current work exceeds the timeout."""
        if self.seconds_left < 0:
            raise EngineError(
                f"the engine's step thread hangs: one step takes longer than engine.step_timeout_seconds = "
                f"{self._timeout_seconds:g}",
                "restart the engine; raise the setting if steps do take that long",
            )

    async def result_of(self, future: "Future[T]") -> T:
        """Return the thread's result. Raises its exception, and `EngineError` if the thread hangs."""
        waiting = asyncio.wrap_future(future)
        while not waiting.done():
            self.raise_if_hung()
            await asyncio.wait({waiting}, timeout=LOOK_SECONDS)
        return waiting.result()
