"""The replay protocol: a closed group in, the group that is judged and trained out."""

from typing import Protocol

from quartet.config import Recipe
from quartet.data.ledger import Ledger
from quartet.types import Group


class Replay(Protocol):
    def __init__(self, recipe: Recipe, ledger: Ledger) -> None: ...

    def compose(self, group: Group) -> Group:
        """The group, possibly with stored members (marked by `replay`) beside or instead of its own."""
        ...

    def observe(self, group: Group) -> None:
        """A group as it was rolled out; its successes may be stored."""
        ...


class NoReplay(Replay):
    """Every rollout is trained on once."""

    def __init__(self, recipe: Recipe, ledger: Ledger) -> None:
        """Nothing to keep."""

    def compose(self, group: Group) -> Group:
        return group

    def observe(self, group: Group) -> None:
        """Nothing to keep."""
