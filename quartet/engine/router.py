"""Router over several engines: send a request to the engine that the dispatch chooses, and continue it at another if
that engine dies.

The engines serve the same policy, but each loads new versions on its own. A stopping engine is **drained**: it returns
the tokens sampled so far (`api.Handlers.drain`), and the router continues the requests at other engines. A torch
engine's draws depend on seed and position only, so the response is the same if the engines serve the same version.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Set

from quartet.config import Dispatch as DispatchChoice
from quartet.engine.base import GenerateRequest, GenerateResult, ReportingEngine
from quartet.engine.dispatch.base import Candidate, Dispatch
from quartet.engine.partial import NOTHING, rest_of
from quartet.engine.replica import Replica
from quartet.errors import EngineError, EngineUnreachableError, PromptTooLongError
from quartet.registry import build
from quartet.types import FinishReason

POLL_SECONDS = 0.1
"""Poll interval while no engine is up."""
MAX_HOMES = 4096
"""Maximum number of conversations whose last engine is remembered."""


class Router:
    """`Engine` over several engines that serve the same policy.

    The dispatch chooses the engine of a request from the engines' work and from the states that they report. The
    request's prompt counts as work, except for the engine that served the conversation last and has most of the prompt
    in its prefix cache.
    """

    def __init__(
        self,
        engines: Mapping[str, ReportingEngine],
        *,
        dispatch: Dispatch | None = None,
        deadline_seconds: float = 30.0,
        probe_seconds: float = 1.0,
    ) -> None:
        """Route requests over `engines`, by default with the recipe's default dispatch. An unreachable engine should
        raise an error soon, so that another engine is tried.

        A dead or stopping engine gets no request until it answers a health check; these are sent every `probe_seconds`.
        `generate` raises an error if no engine is available for `deadline_seconds`.
        """
        self._replicas = {name: Replica(name, engine, probe_seconds) for name, engine in engines.items()}
        self._dispatch: Dispatch = dispatch or build(DispatchChoice())
        self._deadline_seconds, self._probe_seconds = deadline_seconds, probe_seconds
        self._leaving: list[Replica] = []
        self._homes: OrderedDict[str, str] = OrderedDict()
        self._in_flight: set[str] = set()
        self._aborted: set[str] = set()

    async def follow(self, names: Set[str], connect: Callable[[str], ReportingEngine]) -> None:
        """Route over the engines `names` from now on. An engine that is left out gets no further requests, and is
        closed when its last request has ended."""
        for name in names - self._replicas.keys():
            self._replicas[name] = Replica(name, connect(name), self._probe_seconds)
        self._leaving += [self._replicas.pop(name) for name in self._replicas.keys() - names]
        for replica in [replica for replica in self._leaving if not replica.requests]:
            self._leaving.remove(replica)
            await replica.close()

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        """Sample a response, at several engines if necessary.

        Raises an engine's error if the request caused it, and `EngineError` if no engine is up before the deadline.
        """
        self._in_flight.add(request.request_id)
        try:
            return await self._generate(request)
        finally:
            self._in_flight.discard(request.request_id)
            self._aborted.discard(request.request_id)

    async def _generate(self, request: GenerateRequest) -> GenerateResult:
        sampled, deadline = NOTHING, math.inf
        while (replica := await self._find(request, deadline)) is not None:
            # During all awaits: an engine that leaves is closed once it carries no request.
            with replica.carrying(request.request_id, self._cost(replica, rest_of(request, sampled))):
                behind = bool(sampled.versions) and await _is_behind(replica, sampled.versions[-1])
                if request.request_id in self._aborted:  # it was aborted during the awaits above
                    break
                sampled = NOTHING if behind else sampled  # versions must not decrease along a response
                result = await _answer(replica, rest_of(request, sampled))
            sampled = sampled + result
            if result.finish_reason is not FinishReason.ABORT or request.request_id in self._aborted:
                self._remember(request.conversation, replica)
                break
            replica.leave_alone()  # no abort was requested, so the engine is gone or stopping
            deadline = math.inf if result.token_ids else min(deadline, time.monotonic() + self._deadline_seconds)
        return sampled

    async def abort(self, request_id: str) -> None:
        """End a request early, at the engine that runs it."""
        self._aborted |= {request_id} & self._in_flight
        for replica in (*self._replicas.values(), *self._leaving):
            if request_id in replica.requests:
                await replica.engine.abort(request_id)

    @property
    def up(self) -> list[str]:
        """Names of the engines that get requests."""
        return [name for name, replica in self._replicas.items() if replica.is_up]

    @property
    def has_room(self) -> bool:
        """True unless all engines have lately reported that their memory is full."""
        up = [replica for replica in self._replicas.values() if replica.is_up]
        return not up or not all(self._dispatch.is_full(replica.state) for replica in up)

    async def version(self) -> int:
        """Return the oldest version that any engine serves. Raises `EngineError` if none answers."""
        states = await asyncio.gather(*(replica.ask() for replica in self._replicas.values()))
        versions = [state.version for state in states if state is not None]
        if not versions:
            raise _no_engine()
        return min(versions)

    async def close(self) -> None:
        for replica in (*self._replicas.values(), *self._leaving):
            await replica.close()

    async def _find(self, request: GenerateRequest, deadline: float) -> Replica | None:
        """Return the engine that the dispatch chooses; wait while no engine is up. Return None if the request is
        aborted.

        Raises `EngineError` after the deadline.
        """
        while request.request_id not in self._aborted:
            now = time.monotonic()
            if now > deadline:
                raise _no_engine()
            if up := [replica for replica in self._replicas.values() if replica.is_up]:
                return self._chosen(up, request)
            deadline = min(deadline, now + self._deadline_seconds)
            await asyncio.sleep(POLL_SECONDS)
        return None

    def _chosen(self, up: list[Replica], request: GenerateRequest) -> Replica:
        """Return the candidate with the lowest rank, and have all of them asked for their states if that is due."""
        for replica in up:
            replica.ask_if_due()
        newest = max((replica.state.version for replica in up if replica.state), default=0)

        def rank(replica: Replica) -> tuple[float, ...]:
            state, work = replica.state, replica.work_tokens + self._cost(replica, request)
            return self._dispatch.rank(Candidate(work, state, newest - state.version if state else 0))

        return min(up, key=rank)

    def _cost(self, replica: Replica, request: GenerateRequest) -> int:
        at_home = bool(request.conversation) and self._homes.get(request.conversation) == replica.name
        return request.sampling.max_tokens + (0 if at_home else len(request.prompt_ids))

    def _remember(self, conversation: str, replica: Replica) -> None:
        if conversation:
            self._homes[conversation] = replica.name
            self._homes.move_to_end(conversation)
            if len(self._homes) > MAX_HOMES:
                self._homes.popitem(last=False)


async def _answer(replica: Replica, request: GenerateRequest) -> GenerateResult:
    """Return the response, without tokens if the engine is unreachable. Raise an engine's error if the request caused
    it."""
    try:
        return await replica.engine.generate(request)
    except PromptTooLongError:
        raise
    except EngineError as error:
        if not isinstance(error, EngineUnreachableError) and await replica.ask() is not None:
            raise  # the engine is healthy, so the request is at fault
        return NOTHING


async def _is_behind(replica: Replica, version: int) -> bool:
    """Return whether the replica serves a version older than `version`; False if it does not answer."""
    state = await replica.ask()
    return state is not None and state.version < version


def _no_engine() -> EngineError:
    return EngineError("none of the engines answers", "check `quartet status` and the engines' logs")
