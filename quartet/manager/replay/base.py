"""The interface of replays: a closed group in, the group that is judged and trained out."""

from abc import abstractmethod
from typing import Any

from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.part import Part
from quartet.types import Group


class Replay(Part):
    """What of earlier rollouts joins a closed group."""

    def __init__(self, knobs: Any, recipe: Recipe, ledger: Ledger) -> None:
        super().__init__(knobs)
        self.recipe, self.ledger = recipe, ledger

    @abstractmethod
    def compose(self, group: Group) -> Group:
        """Return the group, possibly with stored members (marked by `replay`) beside or instead of its own."""

    def observe(self, group: Group) -> None:
        """Store what may be replayed of a group as it was rolled out."""
