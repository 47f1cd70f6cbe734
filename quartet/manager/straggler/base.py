"""Interface of straggler rules. The base class lets every rollout run to its end, like the rule `none`."""

from typing import Any

from msgspec import Struct

from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.part import Part


class Quorum(Struct, frozen=True, kw_only=True):
    """Number of rollouts of a group, and number of countable rollouts that close it."""

    queued: int
    """Number of rollouts that the group queues."""
    enough: int
    """Number of countable rollouts at which the group closes; its unfinished rollouts are cancelled."""


class StragglerRule(Part):
    """Treatment of rollouts that take much longer than others. Rules have no state and read the ledger."""

    def __init__(self, settings: Any, recipe: Recipe) -> None:
        super().__init__(settings)
        self.recipe = recipe

    def quorum(self, num_rollouts: int) -> Quorum:
        """Return the quorum of a group for which the allocator planned `num_rollouts`."""
        return Quorum(queued=num_rollouts, enough=num_rollouts)

    def groups_ahead(self, groups: int) -> int:
        """Return the maximum number of admitted, untrained groups if the schedule allows `groups` of them."""
        return groups

    def pauses_training(self, ledger: Ledger) -> bool:
        """Return whether training rollouts are paused now: running rollouts are recycled, queued rollouts wait.

        The result may be True only while a train step or a load of weights is in progress, so that every pause ends.
        """
        return False

    @property
    def max_recycles(self) -> int:
        """Maximum number of times that a rollout is requeued with its tokens before it is cancelled."""
        return self.recipe.admission.max_lag
