"""The straggler rule protocol, and the rule `continue`, which is what the others differ from."""

from typing import Protocol

from msgspec import Struct

from quartet.config import Recipe
from quartet.data.ledger import Ledger


class Quorum(Struct, frozen=True, kw_only=True):
    """How many rollouts a group queues, and with how many countable ones it closes; the others are cancelled then."""

    queued: int
    enough: int


class StragglerRule(Protocol):
    """What becomes of rollouts that take much longer than the others. Holds no state: asks the ledger."""

    def __init__(self, recipe: Recipe) -> None: ...

    def quorum(self, num_rollouts: int) -> Quorum:
        """Of a group for which control wants `num_rollouts`."""
        ...

    def groups_ahead(self, groups: int) -> int:
        """How many groups may be on their way where the schedule allows `groups`."""
        ...

    def rests(self, ledger: Ledger) -> bool:
        """Whether training rollouts have to stop now: running ones are recycled, queued ones wait.

        True only as long as something goes on that ends it: a train step, or an engine that loads.
        """
        ...


class KeepGoing(StragglerRule):
    """Every rollout runs to its end, at most until the deadline of its group; nothing waits for it meanwhile."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe

    def quorum(self, num_rollouts: int) -> Quorum:
        return Quorum(queued=num_rollouts, enough=num_rollouts)

    def groups_ahead(self, groups: int) -> int:
        return groups

    def rests(self, ledger: Ledger) -> bool:
        return False
