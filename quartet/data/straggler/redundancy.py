"""ROLL's redundant rollouts: more than the group needs, the first to finish make it."""

from quartet.data.straggler.base import KeepGoing, Quorum


class Redundancy(KeepGoing):
    """A group of n queues n + r rollouts and closes with n countable ones (arXiv 2512.22560; group_size_redundancy).

    Unlike ROLL's, a member that finishes before the group has closed is kept, also beyond n. First to finish favours
    short rollouts: `selection_bias` in the summary says how much.
    """

    def quorum(self, num_rollouts: int) -> Quorum:
        extra = self._recipe.stragglers.redundancy.extra_rollouts
        return Quorum(queued=num_rollouts + extra, enough=num_rollouts)
