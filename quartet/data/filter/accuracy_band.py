"""Groups that are neither too easy nor too hard (the offline filters of several systems, applied online)."""

from quartet.config import Filter as Section
from quartet.data.filter.base import Filter
from quartet.types import Group


class AccuracyBand(Filter):
    """Drops groups whose share of successes is below `min_success` (`too_hard`) or above `max_success` (`too_easy`)."""

    def __init__(self, section: Section) -> None:
        self._lowest, self._highest = section.accuracy_band.min_success, section.accuracy_band.max_success

    def apply(self, group: Group) -> Group | str:
        success = sum(member.trajectory.success for member in group.members) / len(group.members)
        if success < self._lowest:
            return "too_hard"
        return "too_easy" if success > self._highest else group
