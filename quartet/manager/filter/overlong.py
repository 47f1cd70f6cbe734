"""DAPO's overlong filtering: leave out truncated rollouts, whose final outcome is unknown."""

from typing import Annotated

from msgspec.structs import replace
from pydantic import Field

from quartet.config.section import Section
from quartet.manager.filter.base import Filter
from quartet.types import Group, Status, Trajectory

_CUT_OFF = (Status.TRUNCATED_TURNS, Status.TRUNCATED_TOKENS)


class Overlong(Filter):
    """Leave out truncated members, and members with more than `max_response_tokens` (0: no such limit).

    Such members are removed from the baseline too, whereas DAPO (arXiv 2503.14476, section 3.4) only masks their loss.
    A group without other members is dropped as `overlong`.
    """

    class Settings(Section):
        max_response_tokens: Annotated[int, Field(ge=0)] = 0
        """Maximum number of response tokens of a rollout. Longer rollouts are left out, like truncated rollouts; 0
        means no such limit."""

    settings: Settings
    source = "DAPO, arXiv 2503.14476, section 3.4"

    def apply(self, group: Group) -> Group | str:
        members = [member for member in group.members if not self._is_overlong(member.trajectory)]
        return replace(group, members=members) if members else "overlong"

    def _is_overlong(self, trajectory: Trajectory) -> bool:
        too_long = 0 < self.settings.max_response_tokens < trajectory.num_response_tokens
        return trajectory.status in _CUT_OFF or too_long
