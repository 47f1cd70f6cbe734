"""Hardware affinity: requests with long prompts on engines that compute fast, others on engines that read fast.

Source: RollArt, arXiv 2512.22560, principle 1.
"""

from collections.abc import Sequence

from benchmarks.virtual.engine import VirtualEngine
from benchmarks.virtual.routing.base import Routing
from benchmarks.virtual.routing.least_requests import LeastRequests


class Affinity(Routing):
    """Send a request to the hardware on which its kind of workload has the lowest cost relative to the other kinds
    (comparative advantage), and there to the engine with the fewest requests."""

    def __init__(self) -> None:
        self._relative: dict[tuple[str, VirtualEngine], float] = {}

    def pick(self, kind: str, engines: Sequence[VirtualEngine]) -> VirtualEngine:
        relative = [self._relative_cost(kind, engine) for engine in engines]
        best = min(relative)
        preferred = [engine for engine, cost in zip(engines, relative, strict=True) if cost == best]
        return LeastRequests().pick(kind, preferred)

    def _relative_cost(self, kind: str, engine: VirtualEngine) -> float:
        """Return the cost of a request, as a share of the sum over all kinds of workload."""
        if (kind, engine) not in self._relative:
            whole = sum(cost.request_seconds for cost in engine.costs.values())
            self._relative[kind, engine] = engine.costs[kind].request_seconds / whole
        return self._relative[kind, engine]
