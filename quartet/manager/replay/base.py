"""The interface of replays: map a closed group to the group that is filtered and trained."""

import random
from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.part import Part
from quartet.types import Group, GroupMember, ReplayRule


class Replay(Part):
    """Choice of stored rollouts that join a closed group."""

    def __init__(self, settings: Any, recipe: Recipe, ledger: Ledger) -> None:
        super().__init__(settings)
        self.recipe, self.ledger = recipe, ledger

    @classmethod
    def rules(cls, settings: Any, recipe: Recipe) -> frozenset[ReplayRule]:
        """Return the rules of the members that the replay may add; by default any."""
        return frozenset(ReplayRule)

    @abstractmethod
    def compose(self, group: Group) -> Group:
        """Return the group, possibly with stored members added to its own or in place of them. Stored members have
        `replay` set."""

    def observe(self, group: Group) -> None:
        """Store those members of a closed group that may be replayed later."""

    def foreign(self, group: Group, rollouts: Sequence[int]) -> list[int]:
        """Return the stored rollouts that are not the group's own: a manager that was killed may have stored these."""
        own = {member.rollout_id for member in group.members}
        return [rollout_id for rollout_id in rollouts if rollout_id not in own]

    def shuffled(self, group: Group, rollouts: Sequence[int]) -> list[int]:
        """Return the foreign ones in a random order. It is keyed by the group, so that a restarted run repeats it."""
        order = self.foreign(group, rollouts)
        random.Random(f"{self.recipe.seed}/replay/{group.group_id}").shuffle(order)
        return order


def first_readable(rollouts: Sequence[int], most: int, load: Callable[[int], GroupMember | None]) -> list[GroupMember]:
    """Return the first `most` stored rollouts that can be read."""
    readable = (member for member in map(load, rollouts) if member is not None)
    return list(islice(readable, most))
