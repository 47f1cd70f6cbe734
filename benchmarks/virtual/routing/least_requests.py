"""Quartet's router: the engine with the fewest requests."""

from collections.abc import Sequence

from benchmarks.virtual.engine import VirtualEngine
from benchmarks.virtual.routing.base import Routing


class LeastRequests(Routing):
    """Send each request to the engine with the fewest requests; engines that load weights come last."""

    def pick(self, kind: str, engines: Sequence[VirtualEngine]) -> VirtualEngine:
        present = [engine for engine in engines if engine.present]
        serving = [engine for engine in present if not engine.loading]
        return min(serving or present, key=lambda engine: engine.requests)
