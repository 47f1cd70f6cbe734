"""ROLL's redundant rollouts: queue more rollouts than the group needs and use those that finish first."""

from quartet.config.section import Positive, Section
from quartet.manager.straggler.base import Quorum, StragglerRule


class Redundancy(StragglerRule):
    """Queue n + r rollouts for a group of n, and close the group once n are countable (arXiv 2512.22560).

    r is `extra_rollouts`, ROLL's `group_size_redundancy`. Unlike in ROLL, members beyond n that finish before the group
    closes are kept. Rollouts that finish first are short, which biases the group: `selection_bias` in the summary
    measures the effect.
    """

    class Settings(Section):
        extra_rollouts: Positive = 2
        """Number of rollouts that a group queues in addition to the rollouts that it needs."""

    settings: Settings
    source = "ROLL, arXiv 2512.22560, group_size_redundancy"

    def quorum(self, num_rollouts: int) -> Quorum:
        return Quorum(queued=num_rollouts + self.settings.extra_rollouts, enough=num_rollouts)
