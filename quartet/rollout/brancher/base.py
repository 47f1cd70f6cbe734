"""The interface of branchers."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from quartet.part import Part
from quartet.types import Call


class Brancher(Part):
    """Where children leave a running rollout, and how many. Asked in the worker; it keeps no state."""

    may_fork: ClassVar[bool] = True
    """Whether there can be children at all: a run then needs an environment in which they can begin."""

    @abstractmethod
    def forks(self, call: Call, so_far: Sequence[Call]) -> int:
        """Return how many children begin just before `call`: they share the calls `so_far` and what came of them, and
        each answers the prompt of `call` anew.

        Asked after every call that is sampled for training, but for the first one of a rollout: what begins there
        shares no call. Children are asked about, too.
        """
