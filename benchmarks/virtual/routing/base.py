"""Interface of routing policies."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from benchmarks.virtual.engine import VirtualEngine


class Routing(ABC):
    """Choice of an engine for each request."""

    @abstractmethod
    def pick(self, kind: str, engines: Sequence[VirtualEngine]) -> VirtualEngine:
        """Return the engine for a request of this kind of workload."""
