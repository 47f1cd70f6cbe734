"""DART's storage rule: failures that ended after few turns are left out."""

from msgspec.structs import replace

from quartet.config.section import Positive, Section
from quartet.manager.filter.base import Filter
from quartet.types import Group


class ShortFailures(Filter):
    """Leaves out failed members of fewer than `min_turns` turns; a group without other members is dropped.

    DART's released rollout service stores a trajectory only when its reward is positive or it has at least four steps
    (arXiv 2509.23866, `trajectory_runner.py`). A policy that gives up at once is then not taught by its failures.
    """

    class Knobs(Section):
        min_turns: Positive = 4
        """A rollout without reward that has fewer turns is left out."""

    knobs: Knobs
    source = "DART, arXiv 2509.23866; storage rule of its released code, trajectory_runner.py"

    def apply(self, group: Group) -> Group | str:
        members = [
            member
            for member in group.members
            if member.trajectory.reward > 0 or len(member.trajectory.turns) >= self.knobs.min_turns
        ]
        return replace(group, members=members) if members else "short_failures"
