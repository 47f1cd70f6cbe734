"""Whether the step thread still comes back: a process whose other threads answer must not pass for one that works."""

import asyncio
import time
from concurrent.futures import Future
from typing import TypeVar

from quartet.errors import EngineError

LOOK_SECONDS = 0.5

T = TypeVar("T")


class StepWatch:
    """The step thread says when it begins something and when it sleeps; everybody else may ask."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._busy_since: float | None = None

    def begins(self) -> None:
        """A step, or a command between two steps."""
        self._busy_since = time.monotonic()

    def sleeps(self) -> None:
        """Until the next command; that takes as long as it takes."""
        self._busy_since = None

    @property
    def seconds_left(self) -> float:
        """Until what the thread does now is a hang; at most `timeout_seconds`."""
        since = self._busy_since
        return self._timeout_seconds if since is None else self._timeout_seconds - (time.monotonic() - since)

    def raise_if_hung(self) -> None:
        """Raises `EngineError` when the thread does the same thing for too long."""
        if self.seconds_left < 0:
            raise EngineError(
                f"the engine's step thread hangs: one step takes longer than engine.step_timeout_seconds = "
                f"{self._timeout_seconds:g}",
                "start it again; raise the knob where a step does take that long",
            )

    async def result_of(self, future: "Future[T]") -> T:
        """What the thread answers. Raises what it answers with, and `EngineError` when it hangs."""
        waiting = asyncio.wrap_future(future)
        while not waiting.done():
            self.raise_if_hung()
            await asyncio.wait({waiting}, timeout=LOOK_SECONDS)
        return waiting.result()
