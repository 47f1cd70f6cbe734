"""ROLL's redundant rollouts: more than the group needs, the first to finish make it."""

from quartet.config.section import Positive, Section
from quartet.manager.straggler.base import Quorum, StragglerRule


class Redundancy(StragglerRule):
    """A group of n queues n + r rollouts and closes with n countable ones (arXiv 2512.22560; group_size_redundancy).

    Unlike ROLL's, a member that finishes before the group has closed is kept, also beyond n. First to finish favours
    short rollouts: `selection_bias` in the summary says how much.
    """

    class Knobs(Section):
        extra_rollouts: Positive = 2
        """A group queues this many rollouts more than it needs; the first to finish make it."""

    knobs: Knobs
    source = "ROLL, arXiv 2512.22560, group_size_redundancy"

    def quorum(self, num_rollouts: int) -> Quorum:
        return Quorum(queued=num_rollouts + self.knobs.extra_rollouts, enough=num_rollouts)
