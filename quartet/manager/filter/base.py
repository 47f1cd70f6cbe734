"""The interface of filters: a closed group in, a group to train on or the reason of its drop out."""

from abc import abstractmethod

from quartet.part import Part
from quartet.types import Group

EQUAL_REWARDS = "equal_rewards"
"""Reason of a group without contrast; control counts these."""


class Filter(Part):
    """What a closed group is worth."""

    @abstractmethod
    def apply(self, group: Group) -> Group | str:
        """Return the group, possibly with fewer members, or the reason why it is dropped (a short snake_case word).

        `group` holds countable members only.
        """
