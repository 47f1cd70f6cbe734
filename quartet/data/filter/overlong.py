"""DAPO's overlong filtering: a rollout that was cut off says little about what it would have come to."""

from msgspec.structs import replace

from quartet.config import Filter as Section
from quartet.data.filter.base import Filter
from quartet.types import Group, Status, Trajectory

_CUT_OFF = (Status.TRUNCATED_TURNS, Status.TRUNCATED_TOKENS)


class Overlong(Filter):
    """Leaves out members that were truncated, and those of more than `max_response_tokens` (0: no such limit).

    They leave the baseline too (DAPO, arXiv 2503.14476, section 3.4, masks their loss only). A group that is nothing
    else is dropped as `overlong`.
    """

    def __init__(self, section: Section) -> None:
        self._max_tokens = section.overlong.max_response_tokens

    def apply(self, group: Group) -> Group | str:
        members = [member for member in group.members if not self._is_overlong(member.trajectory)]
        return replace(group, members=members) if members else "overlong"

    def _is_overlong(self, trajectory: Trajectory) -> bool:
        too_long = 0 < self._max_tokens < trajectory.num_response_tokens
        return trajectory.status in _CUT_OFF or too_long
