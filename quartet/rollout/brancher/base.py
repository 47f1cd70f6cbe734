"""Interface of branchers."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from quartet.part import Part
from quartet.types import Call


class Brancher(Part):
    """Rule that decides where a running rollout is forked, and into how many children. A brancher keeps no state."""

    may_fork: ClassVar[bool] = True
    """False if the brancher never forks. Otherwise a run needs an environment that has snapshots or is
    deterministic."""

    @abstractmethod
    def forks(self, call: Call, so_far: Sequence[Call]) -> int:
        """Return the number of children that fork just before `call`.

        The children share the calls `so_far` and the results of their actions, and each samples its own response to the
        prompt of `call`. The worker calls this method after every call that is sampled for training, in children too.
        It skips a rollout's first call, since a fork there would share no call.
        """
