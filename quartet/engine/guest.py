"""Engine that shares the device of the trainer: it serves while the trainer waits for a batch.

When the trainer begins to compute, requests in flight end with the tokens sampled so far, as when an engine is drained
(`api.Handlers.drain`), and their routers continue them at other engines. The trainer does not wait for that.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from quartet.engine.base import EngineState, GenerateRequest, GenerateResult, PolicyLoad, ServedEngine
from quartet.errors import EngineError

POLL_SECONDS = 0.02
"""Interval at which the trainer's lock is tested, which bounds how long both compute."""


class Guest:
    """`ServedEngine` that is unavailable while the trainer of its device computes."""

    def __init__(self, engine: ServedEngine, trainer_computes: Callable[[], bool]) -> None:
        self._engine, self._trainer_computes = engine, trainer_computes
        self.max_context_tokens, self.vocab_size = engine.max_context_tokens, engine.vocab_size
        self.counters = engine.counters
        self._is_away = trainer_computes()
        self._in_flight: set[str] = set()

    @property
    def active_requests(self) -> int:
        return self._engine.active_requests

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Follow the trainer inside the block."""
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        """Sample a response, or its beginning if the trainer begins to compute. Raises `EngineError` while it does."""
        self._refuse_while_away()
        self._in_flight.add(request.request_id)
        try:
            return await self._engine.generate(request)
        finally:
            self._in_flight.discard(request.request_id)

    def so_far(self, request_id: str) -> GenerateResult:
        return self._engine.so_far(request_id)

    async def abort(self, request_id: str) -> None:
        await self._engine.abort(request_id)

    async def version(self) -> int:
        """Return the served version. Raises `EngineError` while the trainer computes, so that routers wait."""
        self._refuse_while_away()
        return await self._engine.version()

    async def state(self) -> EngineState:
        self._refuse_while_away()
        return await self._engine.state()

    async def load_policy(self, path: str | Path, version: int) -> PolicyLoad:
        return await self._engine.load_policy(path, version)

    async def close(self) -> None:
        await self._engine.close()

    def _refuse_while_away(self) -> None:
        if self._is_away:
            raise EngineError("the trainer computes on this engine's device", "use another engine until it waits")

    async def _watch(self) -> None:
        while True:
            self._is_away = self._trainer_computes()
            for request_id in self._in_flight.copy() if self._is_away else ():
                with suppress(EngineError):  # the request is still in flight at the next poll, which tries again
                    await self._engine.abort(request_id)
            await asyncio.sleep(POLL_SECONDS)
