"""Brancher without forks of running rollouts."""

from collections.abc import Sequence

from quartet.rollout.brancher.base import Brancher
from quartet.types import Call


class NoForks(Brancher):
    """Do not fork running rollouts. An allocator may still fork finished ones."""

    may_fork = False

    def forks(self, call: Call, so_far: Sequence[Call]) -> int:
        return 0
