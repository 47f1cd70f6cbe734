"""The interface of straggler rules. Its defaults are the rule `none`: every rollout runs to its end."""

from typing import Any

from msgspec import Struct

from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.part import Part


class Quorum(Struct, frozen=True, kw_only=True):
    """How many rollouts a group queues, and with how many countable ones it closes; the others are cancelled then."""

    queued: int
    enough: int


class StragglerRule(Part):
    """What happens to rollouts that take much longer than the others. Holds no state: asks the ledger."""

    def __init__(self, knobs: Any, recipe: Recipe) -> None:
        super().__init__(knobs)
        self.recipe = recipe

    def quorum(self, num_rollouts: int) -> Quorum:
        """Return the quorum of a group for which control wants `num_rollouts`."""
        return Quorum(queued=num_rollouts, enough=num_rollouts)

    def groups_ahead(self, groups: int) -> int:
        """Return how many groups may be on their way where the schedule allows `groups`."""
        return groups

    def rests(self, ledger: Ledger) -> bool:
        """Return whether training rollouts have to stop now: running ones are recycled, queued ones wait.

        True only as long as something goes on that ends it: a train step, or an engine that loads.
        """
        return False

    @property
    def max_recycles(self) -> int:
        """How often a rollout goes back to the queue with the tokens it has, before it is cancelled."""
        return self.recipe.admission.max_lag
