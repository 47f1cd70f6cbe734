"""DAPO's overlong filtering: a rollout that was cut off says little about what it would have come to."""

from typing import Annotated

from msgspec.structs import replace
from pydantic import Field

from quartet.config.section import Section
from quartet.manager.filter.base import Filter
from quartet.types import Group, Status, Trajectory

_CUT_OFF = (Status.TRUNCATED_TURNS, Status.TRUNCATED_TOKENS)


class Overlong(Filter):
    """Leaves out members that were truncated, and those of more than `max_response_tokens` (0: no such limit).

    They leave the baseline too (DAPO, arXiv 2503.14476, section 3.4, masks their loss only). A group that is nothing
    else is dropped as `overlong`.
    """

    class Knobs(Section):
        max_response_tokens: Annotated[int, Field(ge=0)] = 0
        """Besides truncated rollouts, those with more response tokens are left out; 0 means no such limit."""

    knobs: Knobs
    source = "DAPO, arXiv 2503.14476, section 3.4"

    def apply(self, group: Group) -> Group | str:
        members = [member for member in group.members if not self._is_overlong(member.trajectory)]
        return replace(group, members=members) if members else "overlong"

    def _is_overlong(self, trajectory: Trajectory) -> bool:
        too_long = 0 < self.knobs.max_response_tokens < trajectory.num_response_tokens
        return trajectory.status in _CUT_OFF or too_long
