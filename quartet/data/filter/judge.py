"""The verdict on a closed group: all filters in order, then the least number of members."""

from quartet.data.filter.base import Filter
from quartet.data.ledger import Ledger
from quartet.types import Group, GroupState


class Judge:
    """Moves closed groups to `trainable`, or to `dropped` with a reason."""

    def __init__(self, ledger: Ledger, filters: dict[str, Filter], min_rollouts_per_group: int) -> None:
        self._ledger, self._filters, self._min_rollouts = ledger, filters, min_rollouts_per_group

    def decide(self, group: Group) -> tuple[GroupState, str]:
        """Write the verdict; returns the new state and, when dropped, the reason."""
        kept, excluded_by = group, []
        for name, a_filter in self._filters.items():
            # Fewer members would make a filter judge a group that is dropped anyway.
            if len(kept.members) < self._min_rollouts:
                break
            passed = a_filter.apply(kept)
            if isinstance(passed, str):
                self._ledger.drop_group(group.group_id, passed)
                return GroupState.DROPPED, passed
            if len(passed.members) < len(kept.members):
                excluded_by.append(name)
            kept = passed
        if len(kept.members) < self._min_rollouts:
            reason = "too_few_countable"
            self._ledger.drop_group(group.group_id, reason)
            return GroupState.DROPPED, reason
        kept_ids = [member.rollout_id for member in kept.members]
        self._ledger.make_trainable(group.group_id, kept_ids, self._min_rollouts, "+".join(excluded_by))
        return GroupState.TRAINABLE, ""
