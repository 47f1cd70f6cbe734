"""Verdict on a closed group: apply the filters in order, then require the minimum number of members."""

from msgspec.structs import replace

from quartet.ledger import Ledger
from quartet.manager.filter.base import Filter
from quartet.types import TOO_FEW_COUNTABLE, Group, GroupState


class Judge:
    """Decision about closed groups: a group becomes `trainable`, or `dropped` with a reason."""

    def __init__(self, ledger: Ledger, filters: dict[str, Filter], min_rollouts_per_group: int) -> None:
        self._ledger, self._filters, self._min_rollouts = ledger, filters, min_rollouts_per_group

    def decide(self, group: Group, composed: Group) -> tuple[GroupState, str]:
        """Move the closed `group` to its next state. `composed` is the same group with the members that replay added.

        Return the new state and the drop reason, which is "" for a trainable group.
        """
        left_out = dict.fromkeys(_ids(group) - _ids(composed), "replay")
        for name, a_filter in self._filters.items():
            # A group with too few members is dropped anyway, whatever the filters return.
            if len(composed.compared) < self._min_rollouts:
                break
            passed = a_filter.apply(composed)
            if isinstance(passed, str):
                return self._drop(group, passed)
            left_out |= dict.fromkeys(_ids(composed) - _ids(passed), name)
            composed = passed
        left_rollouts = {rollout_id: reason for (rollout_id, _), reason in left_out.items()}
        # If a rollout has several trajectories of the policy, it is kept with all of them or not at all.
        members = [one for one in composed.members if one.replay is not None or one.rollout_id not in left_rollouts]
        own = list(dict.fromkeys(member.rollout_id for member in members if member.replay is None))
        stored = {member.rollout_id: member.replay for member in members if member.replay is not None}
        if len(replace(composed, members=members).compared) < self._min_rollouts or not own:
            return self._drop(group, TOO_FEW_COUNTABLE)
        least = min(self._min_rollouts, len(own))  # stored members count towards the minimum, anchors do not
        ledger = self._ledger.of(group.policy)
        ledger.groups.make_trainable(group.group_id, own, least, excluded=left_rollouts, replayed=stored)
        return GroupState.TRAINABLE, ""

    def _drop(self, group: Group, reason: str) -> tuple[GroupState, str]:
        self._ledger.groups.drop(group.group_id, reason)
        return GroupState.DROPPED, reason


def _ids(group: Group) -> set[tuple[int, str]]:
    """Return (rollout id, part) of the members."""
    return {(member.rollout_id, member.trajectory.part) for member in group.members}
