"""Polar's early stop: a group closes before all its rollouts have ended."""

import math

from quartet.data.straggler.base import KeepGoing, Quorum


class EarlyStop(KeepGoing):
    """A group of n closes with min(n, ceil(n f) + 2) countable members (arXiv 2605.24220, its bridge to slime), and
    never with fewer than a group needs to be trained."""

    def quorum(self, num_rollouts: int) -> Quorum:
        share, least = self._recipe.stragglers.early_stop.min_share, self._recipe.admission.min_rollouts_per_group
        enough = max(math.ceil(num_rollouts * share) + 2, least)
        return Quorum(queued=num_rollouts, enough=min(num_rollouts, enough))
