"""The interface of filters: map a closed group to a group to train on, or to a drop reason."""

from abc import abstractmethod
from typing import ClassVar

from quartet.part import Part
from quartet.types import Group


class Filter(Part):
    """Filter of closed groups and of their members."""

    reads_rewards: ClassVar[bool] = False
    """True if the verdict depends on rewards or successes. A credit without rewards refuses such a filter."""

    @abstractmethod
    def apply(self, group: Group) -> Group | str:
        """Return the group, possibly with fewer members, or the reason for dropping it (a short snake_case word).

        `group` contains countable members only.
        """
