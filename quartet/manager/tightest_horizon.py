"""Combination of several horizons into the lowest of their limits."""

from collections.abc import Sequence

from quartet.manager.control.base import Horizon
from quartet.types import Task


class TightestHorizon:
    """Horizon with the lowest of several horizons' limits, at most `upper_bound` turns."""

    def __init__(self, horizons: Sequence[Horizon], upper_bound: int) -> None:
        self._horizons, self._upper_bound = horizons, upper_bound

    def max_turns(self, task: Task) -> int:
        return min(self._upper_bound, *(horizon.max_turns(task) for horizon in self._horizons))
