"""Several engines behind one: each request goes where it is done soonest, and elsewhere when that engine dies.

The engines serve the same policy, each at its own pace. One that is told to end is **drained**: it answers its requests
with the tokens they have (`api.Handlers.hand_over`), and they go on elsewhere from there. A torch engine's draws depend
on seed and position, so at the same version nothing else is drawn.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from quartet.engine.base import Engine, GenerateRequest, GenerateResult
from quartet.engine.partial import NOTHING, rest_of
from quartet.errors import EngineError, EngineUnreachableError, PromptTooLongError
from quartet.types import FinishReason

LOOK_SECONDS = 0.1
"""Pause between looks for an engine when there is none."""
MAX_HOMES = 4096
"""Conversations of which it is known where they were last."""


@dataclass(eq=False)
class Replica:
    """One of the engines."""

    name: str
    engine: Engine
    requests: dict[str, int] = field(default_factory=dict)
    """Request id -> tokens it may still take, prompt included where it must be computed."""
    probe: asyncio.Task[None] | None = None
    """Waits until a replica that did not answer does so again."""

    @property
    def is_up(self) -> bool:
        return self.probe is None or self.probe.done()

    @property
    def work_tokens(self) -> int:
        return sum(self.requests.values())

    @contextmanager
    def carrying(self, request_id: str, tokens: int) -> Iterator[None]:
        self.requests[request_id] = tokens
        try:
            yield
        finally:
            del self.requests[request_id]


class Router:
    """Implements `Engine` over several that serve the same policy.

    A request goes to the engine with the least work, where its prompt counts as work for all but the one that had its
    conversation last, since that one has most of it in its cache.
    """

    def __init__(
        self, engines: Mapping[str, Engine], *, deadline_seconds: float = 30.0, probe_seconds: float = 1.0
    ) -> None:
        """`engines` should raise soon when they cannot be reached: then another one is asked. One that was found dead
        or is about to end gets no request before it has answered a health check; there is one every `probe_seconds`.
        When there is no engine for `deadline_seconds`, `generate` raises."""
        self._replicas = {name: Replica(name, engine) for name, engine in engines.items()}
        self._deadline_seconds, self._probe_seconds = deadline_seconds, probe_seconds
        self._homes: OrderedDict[str, str] = OrderedDict()
        self._in_flight: set[str] = set()
        self._aborted: set[str] = set()

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        """Sample a response, on as many engines as it takes. Raises what the engine says about the request itself, and
        `EngineError` when there is no engine for too long."""
        self._in_flight.add(request.request_id)
        try:
            return await self._generate(request)
        finally:
            self._in_flight.discard(request.request_id)
            self._aborted.discard(request.request_id)

    async def _generate(self, request: GenerateRequest) -> GenerateResult:
        sampled, deadline = NOTHING, math.inf
        while (replica := await self._find(request, deadline)) is not None:
            behind = bool(sampled.versions) and await self._is_behind(replica, sampled.versions[-1])
            if request.request_id in self._aborted:  # meanwhile
                break
            sampled = NOTHING if behind else sampled  # its tokens would be older
            rest = rest_of(request, sampled)
            try:
                with replica.carrying(request.request_id, self._cost(replica, rest)):
                    result = await replica.engine.generate(rest)
            except PromptTooLongError:
                raise
            except EngineError as error:
                if not isinstance(error, EngineUnreachableError) and await self._version_of(replica) is not None:
                    raise  # the request's own fault
                result = NOTHING
            sampled = sampled + result
            if result.finish_reason is not FinishReason.ABORT or request.request_id in self._aborted:
                self._remember(request.conversation, replica)
                break
            self._leave_alone(replica)  # nobody asked for that: the engine is gone, or about to end
            deadline = math.inf if result.token_ids else min(deadline, time.monotonic() + self._deadline_seconds)
        return sampled

    async def abort(self, request_id: str) -> None:
        """End a request early, wherever it is."""
        self._aborted |= {request_id} & self._in_flight
        for replica in self._replicas.values():
            if request_id in replica.requests:
                await replica.engine.abort(request_id)

    async def version(self) -> int:
        """The oldest version that any engine serves. Raises `EngineError` when none answers."""
        answers = await asyncio.gather(*(self._version_of(replica) for replica in self._replicas.values()))
        versions = [version for version in answers if version is not None]
        if not versions:
            raise _nobody()
        return min(versions)

    async def close(self) -> None:
        for replica in self._replicas.values():
            if replica.probe is not None:
                replica.probe.cancel()
            await replica.engine.close()

    async def _find(self, request: GenerateRequest, deadline: float) -> Replica | None:
        """The engine that would be done soonest; waits for one to come back when there is none. None once the request
        is aborted. Raises `EngineError` after the deadline."""
        while request.request_id not in self._aborted:
            now = time.monotonic()
            if now > deadline:
                raise _nobody()
            if up := [replica for replica in self._replicas.values() if replica.is_up]:
                return min(up, key=lambda replica: replica.work_tokens + self._cost(replica, request))
            deadline = min(deadline, now + self._deadline_seconds)
            await asyncio.sleep(LOOK_SECONDS)
        return None

    def _cost(self, replica: Replica, request: GenerateRequest) -> int:
        at_home = bool(request.conversation) and self._homes.get(request.conversation) == replica.name
        return request.sampling.max_tokens + (0 if at_home else len(request.prompt_ids))

    def _remember(self, conversation: str, replica: Replica) -> None:
        if conversation:
            self._homes[conversation] = replica.name
            self._homes.move_to_end(conversation)
            if len(self._homes) > MAX_HOMES:
                self._homes.popitem(last=False)

    async def _is_behind(self, replica: Replica, version: int) -> bool:
        """Whether it serves an older policy. An engine that cannot say so finds out when it is asked to generate."""
        serves = await self._version_of(replica)
        return serves is not None and serves < version

    async def _version_of(self, replica: Replica) -> int | None:
        """Its health; one that does not answer is left alone until it does."""
        try:
            return await replica.engine.version()
        except EngineError:
            self._leave_alone(replica)
            return None

    def _leave_alone(self, replica: Replica) -> None:
        """No request has to find out that it is still dead, however little work it has."""
        if replica.is_up:
            replica.probe = asyncio.create_task(self._wait_for(replica))

    async def _wait_for(self, replica: Replica) -> None:
        while True:
            await asyncio.sleep(self._probe_seconds)
            with suppress(EngineError):
                await replica.engine.version()
                return


def _nobody() -> EngineError:
    return EngineError("none of the engines answers", "see `quartet status`; their logs say why they stopped")
