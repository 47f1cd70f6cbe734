"""Watchdog of the engine's step thread, so that a process whose decode steps hang does not count as healthy."""

import asyncio
import time
from concurrent.futures import Future
from typing import TypeVar

from quartet.errors import EngineError

POLL_SECONDS = 0.5

T = TypeVar("T")


class StepWatch:
    """Watchdog of the step thread. That thread calls `begins` and `sleeps`; any thread may call the other methods."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._busy_since: float | None = None

    def begins(self) -> None:
        """Record the start of a step, or of a command between two steps."""
        self._busy_since = time.monotonic()

    def sleeps(self) -> None:
        """Record that the thread waits for the next command, which may take any time."""
        self._busy_since = None

    @property
    def seconds_left(self) -> float:
        """Seconds until the current work counts as hung, negative afterwards; `timeout_seconds` without work."""
        since = self._busy_since
        return self._timeout_seconds if since is None else self._timeout_seconds - (time.monotonic() - since)

    def raise_if_hung(self) -> None:
        """Raise `EngineError` if the thread's current work has exceeded the timeout."""
        if self.seconds_left < 0:
            raise EngineError(
                f"the engine's step thread hangs: one step takes longer than engine.step_timeout_seconds = "
                f"{self._timeout_seconds:g}",
                "restart the engine; raise the setting if steps do take that long",
            )

    async def result_of(self, future: "Future[T]") -> T:
        """Return the result of a command. Raises the command's exception, or `EngineError` if the thread hangs."""
        waiting = asyncio.wrap_future(future)
        while not waiting.done():
            self.raise_if_hung()
            await asyncio.wait({waiting}, timeout=POLL_SECONDS)
        return waiting.result()
