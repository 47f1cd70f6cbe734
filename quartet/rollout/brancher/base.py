"""Interface of branchers."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from quartet.part import Part
from quartet.types import Call


class Brancher(Part):
    """Rule for forks of a running rollout: where, and how many. The worker calls it; it keeps no state."""

    may_fork: ClassVar[bool] = True
    """False if there are never forks; otherwise a run needs an environment in which they can begin."""

    @abstractmethod
    def forks(self, call: Call, so_far: Sequence[Call]) -> int:
        """Return how many children fork just before `call`.

        They share the calls `so_far` and their outcomes, and each samples its own response to the prompt of `call`.
        Called after every call that is sampled for training, except a rollout's first, where a fork would share no
        call. Calls of children are included.
        """
