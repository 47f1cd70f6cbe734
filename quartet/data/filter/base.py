"""The filter protocol: a closed group in, a group to train on or a reason to drop it out."""

from typing import Protocol

from quartet.config import Filter as Section
from quartet.types import Group

EQUAL_REWARDS = "equal_rewards"
"""Reason of a group without contrast; control counts these."""


class Filter(Protocol):
    def __init__(self, section: Section) -> None: ...

    def apply(self, group: Group) -> Group | str:
        """The group, possibly with fewer members, or the reason why it is dropped (a short snake_case word).

        `group` holds countable members only.
        """
        ...
