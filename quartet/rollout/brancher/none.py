"""No forks: every rollout begins with a reset."""

from collections.abc import Sequence

from quartet.rollout.brancher.base import Brancher
from quartet.types import Call


class NoForks(Brancher):
    """Every rollout begins with a reset, unless the allocator forks finished ones."""

    may_fork = False

    def forks(self, call: Call, so_far: Sequence[Call]) -> int:
        return 0
