"""The verdict on a closed group: all filters in order, then the least number of members."""

from quartet.data.filter.base import Filter
from quartet.data.ledger import Ledger
from quartet.types import Group, GroupState


class Judge:
    """Moves closed groups to `trainable`, or to `dropped` with a reason."""

    def __init__(self, ledger: Ledger, filters: dict[str, Filter], min_rollouts_per_group: int) -> None:
        self._ledger, self._filters, self._min_rollouts = ledger, filters, min_rollouts_per_group

    def decide(self, group: Group, replaced: bool = False) -> tuple[GroupState, str]:
        """Write the verdict; returns the new state and, when dropped, the reason.

        The group may hold stored members; `replaced` when they took the place of some of its own.
        """
        kept, excluded_by = group, ["replay"] if replaced else []
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
        own = [member.rollout_id for member in kept.members if member.replay is None]
        stored = {member.rollout_id: member.replay for member in kept.members if member.replay is not None}
        self._ledger.make_trainable(group.group_id, own, self._min_own(own), "+".join(excluded_by), stored)
        return GroupState.TRAINABLE, ""

    def _min_own(self, own: list[int]) -> int:
        """A stored member makes up for one that is missing, but only what is there now."""
        return min(self._min_rollouts, len(own))
