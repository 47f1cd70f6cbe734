"""One engine behind the router: its requests, its reported state, and the health checks while it is unreachable."""

import asyncio
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from quartet.engine.base import EngineState, ReportingEngine
from quartet.errors import EngineError

STATE_SECONDS = 0.5
"""Interval at which an engine that may get requests is asked for its state."""
STATE_LIFE_SECONDS = 2.0
"""Time after which a reported state no longer counts."""


class Replica:
    """One engine. It is up unless it did not answer, and has not answered a health check since."""

    def __init__(self, name: str, engine: ReportingEngine, probe_seconds: float) -> None:
        """Repeat health checks every `probe_seconds` while the engine is not up."""
        self.name, self.engine = name, engine
        self.requests: dict[str, int] = {}
        """Request id -> expected work in tokens: `max_tokens`, plus the number of prompt tokens if they must be
        computed."""
        self._probe_seconds = probe_seconds
        self._probe: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[EngineState | None] | None = None
        self._asked_at = self._reported_at = -math.inf
        self._reported: EngineState | None = None

    @property
    def is_up(self) -> bool:
        return self._probe is None or self._probe.done()

    @property
    def work_tokens(self) -> int:
        return sum(self.requests.values())

    @property
    def state(self) -> EngineState | None:
        """State that the engine has reported lately, if any."""
        return self._reported if time.monotonic() - self._reported_at < STATE_LIFE_SECONDS else None

    @contextmanager
    def carrying(self, request_id: str, tokens: int) -> Iterator[None]:
        self.requests[request_id] = tokens
        try:
            yield
        finally:
            del self.requests[request_id]

    def ask_if_due(self) -> None:
        """Ask the engine for its state, beside the requests, if the last time was long enough ago."""
        now = time.monotonic()
        if now - self._asked_at >= STATE_SECONDS and (self._asking is None or self._asking.done()):
            self._asked_at = now
            self._asking = asyncio.create_task(self.ask())

    async def ask(self) -> EngineState | None:
        """Return the engine's state. If the engine does not answer, return None and send it no more requests."""
        try:
            state = await self.engine.state()
        except EngineError:
            self.leave_alone()
            return None
        self._reported, self._reported_at = state, time.monotonic()
        return state

    def leave_alone(self) -> None:
        """Send no requests to the engine until it answers a health check."""
        if self.is_up:
            self._probe = asyncio.create_task(self._wait_for_answer())

    async def close(self) -> None:
        for task in filter(None, (self._probe, self._asking)):
            task.cancel()
        await self.engine.close()

    async def _wait_for_answer(self) -> None:
        while True:
            await asyncio.sleep(self._probe_seconds)
            with suppress(EngineError):
                await self.engine.version()
                return
