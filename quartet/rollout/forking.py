"""Asks the brancher about the calls of running rollouts, and queues the children that it wants."""

from collections.abc import Sequence

from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.registry import build
from quartet.rollout.brancher.base import Brancher
from quartet.types import Call, RolloutLease


class Forking:
    """The brancher of a recipe, on a ledger."""

    def __init__(self, recipe: Recipe, ledger: Ledger) -> None:
        self._brancher: Brancher = build(recipe.rollout.brancher)
        self._most_forks, self._ledger = recipe.rollout.brancher.max_forks_per_group, ledger

    def fork_before(self, lease: RolloutLease, call: Call, so_far: Sequence[Call]) -> None:
        """Queue the children that leave a rollout just before `call`. Raises `LeaseLostError`."""
        count = self._brancher.forks(call, so_far) if so_far else 0
        if count > 0:
            self._ledger.fork(lease, [*so_far, call], len(so_far) - 1, count, self._most_forks)
