"""An engine in virtual time: continuous batching as processor sharing, with the iteration costs of the forecast.

All requests in the batch get one token per iteration, so a request ends when the engine's count of iterations has grown
by its number of tokens. The duration of an iteration changes only when a request begins or ends.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from benchmarks.virtual.clock import VirtualClock
from quartet.forecast.engine_cost import EngineCost
from quartet.types import MAIN

_FULL = 1 + 1e-6
"""Share of memory that counts as full, with room for rounding."""


@dataclass(eq=False)
class Request:
    """One generation."""

    tokens: int
    cache_seconds: float
    """Time per iteration to read its keys and values on this engine."""
    prefill_seconds: float
    memory: float
    """Share of the engine's memory that its keys and values take."""
    done: Callable[[], None]
    lost: Callable[[], None]
    """Called if the engine leaves before the end."""
    aborted: bool = False
    ends_at: float = math.inf
    """The engine's count of iterations at its end; infinite while it waits."""
    prefill_per_iteration: float = field(init=False)

    def __post_init__(self) -> None:
        self.prefill_per_iteration = self.prefill_seconds / self.tokens


class VirtualEngine:
    """One engine. `costs` has the cost of each kind of workload on its hardware, `versions` the version that it serves
    of each policy. The engine takes no requests, and begins to load no weights, while it is not `present`."""

    def __init__(
        self,
        clock: VirtualClock,
        name: str,
        costs: Mapping[str, EngineCost],
        policies: Sequence[str] = (MAIN,),
        latency_seconds: float = 0.0,
    ) -> None:
        self._clock, self.name, self.costs, self.latency_seconds = clock, name, costs, latency_seconds
        self._cost = next(iter(costs.values()))
        self.versions, self.loading, self.present = dict.fromkeys(policies, 0), False, True
        self.busy_seconds = self.compute_seconds = self.request_seconds = self.tokens = 0.0
        self._iterations, self._since, self._turn = 0.0, clock.now, 0
        self._running: list[tuple[float, int, Request]] = []
        self._waiting: deque[Request] = deque()
        self._batch, self._cache, self._prefill, self._memory = 0, 0.0, 0.0, 0.0
        self.requests = 0
        """Number of requests in the engine, waiting ones included."""
        self._numbers = count()

    def generate(
        self,
        kind: str,
        tokens: int,
        done: Callable[[], None],
        lost: Callable[[], None] = lambda: None,
        *,
        sampled_before: int = 0,
    ) -> Request:
        """Compute `tokens` tokens of a response for a workload of this kind; call `done` at their end. Earlier tokens
        of the same response (`sampled_before`) are part of the prompt."""
        cost = self.costs[kind]
        prefill_seconds = cost.prefill_seconds + sampled_before * cost.product_seconds
        request = Request(max(tokens, 1), cost.cache_seconds, prefill_seconds, 1 / cost.slots, done, lost)
        self._advance()
        self.requests += 1
        self._waiting.append(request)
        self._admit()
        return request

    def abort(self, request: Request) -> int:
        """End a request without calling `done`; return the number of its tokens so far."""
        self._advance()
        sampled = math.floor(max(request.tokens - (request.ends_at - self._iterations), 0.0))
        request.aborted = True
        self.requests -= 1
        if request in self._waiting:
            self._waiting.remove(request)
        else:
            self._leave(request)
        self._admit()
        return min(sampled, request.tokens - 1)

    def leave(self) -> None:
        """Leave the run; its requests are lost."""
        self.present = False
        unfinished = [one for _, _, one in self._running if not one.aborted] + list(self._waiting)
        for request in unfinished:
            self.abort(request)
        for request in unfinished:
            request.lost()

    def load(self, version: int, seconds: float, done: Callable[[], None], policy: str = MAIN) -> None:
        """Stop for `seconds` to load new weights of a policy, with requests in flight."""
        self._advance()
        self.loading = True
        self._schedule()

        def loaded() -> None:
            self._advance()
            self.loading, self.versions[policy] = False, version
            self._schedule()
            done()

        self._clock.after(seconds, loaded)

    def count_time(self) -> None:
        """Bring the counted seconds up to now."""
        self._advance()

    def _admit(self) -> None:
        while self._waiting and self._memory + self._waiting[0].memory <= _FULL:
            request = self._waiting.popleft()
            request.ends_at = self._iterations + request.tokens
            heapq.heappush(self._running, (request.ends_at, next(self._numbers), request))
            self._batch += 1
            self._cache += request.cache_seconds
            self._prefill += request.prefill_per_iteration
            self._memory += request.memory
        self._schedule()

    def _leave(self, request: Request) -> None:
        self._batch -= 1
        self._cache -= request.cache_seconds
        self._prefill -= request.prefill_per_iteration
        self._memory -= request.memory

    def _iteration_seconds(self) -> float:
        return self._cost.iteration_seconds(self._batch, self._cache, self._prefill)

    def _advance(self) -> None:
        elapsed, self._since = self._clock.now - self._since, self._clock.now
        if self._batch and not self.loading:
            iterations = elapsed / self._iteration_seconds()
            self._iterations += iterations
            self.tokens += iterations * self._batch
            self.compute_seconds += iterations * (self._batch * self._cost.product_seconds + self._prefill)
            self.busy_seconds += elapsed
        self.request_seconds += elapsed * self.requests

    def _schedule(self) -> None:
        """Wake up at the end of the next request; earlier requests of a wake-up become void."""
        self._turn += 1
        while self._running and self._running[0][2].aborted:
            heapq.heappop(self._running)
        if self._running and not self.loading:
            turn, left = self._turn, max(self._running[0][0] - self._iterations, 0.0)
            self._clock.after(left * self._iteration_seconds(), lambda: self._finish(turn))

    def _finish(self, turn: int) -> None:
        if turn != self._turn:
            return
        self._advance()
        finished, _, request = heapq.heappop(self._running)
        self._iterations = max(self._iterations, finished)
        self.requests -= 1
        self._leave(request)
        self._admit()
        request.done()
