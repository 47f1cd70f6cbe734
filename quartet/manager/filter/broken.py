"""Filter that leaves out failed rollouts with few valid actions, because their training signal is noise."""

from msgspec.structs import replace

from quartet.config.section import Fraction, Section
from quartet.manager.filter.base import Filter
from quartet.types import Group, Trajectory


class Broken(Filter):
    """Leave out failed members in which more than `max_error_share` of the turns had an action error.

    A group without other members is dropped as `broken`. Successes are always kept.
    """

    class Settings(Section):
        max_error_share: Fraction = 0.5
        """Largest share of turns with an action error in a failed rollout that is kept."""

    settings: Settings
    reads_rewards = True

    def apply(self, group: Group) -> Group | str:
        members = [member for member in group.members if not self._is_broken(member.trajectory)]
        return replace(group, members=members) if members else "broken"

    def _is_broken(self, trajectory: Trajectory) -> bool:
        errors = sum(bool(turn.error) for turn in trajectory.turns)
        return not trajectory.success and errors > self.settings.max_error_share * len(trajectory.turns)
