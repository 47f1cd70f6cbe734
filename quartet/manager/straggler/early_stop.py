"""Polar's early stop: close a group before all its rollouts have ended."""

from quartet.config.section import Fraction, Section
from quartet.manager.straggler.base import Quorum, StragglerRule
from quartet.rounding import rounded_up


class EarlyStop(StragglerRule):
    """Close a group of n once it has min(n, ceil(n s) + 2) countable members, s = `min_share`, and enough for training.

    The formula is from Polar's bridge to slime (arXiv 2605.24220).
    """

    class Settings(Section):
        min_share: Fraction = 0.5
        """Share s of a group's n rollouts. The group closes once it has min(n, ceil(n s) + 2) countable members, and at
        least `admission.min_rollouts_per_group`."""

    settings: Settings
    source = "Polar, arXiv 2605.24220, its bridge to slime"

    def quorum(self, num_rollouts: int) -> Quorum:
        share, least = self.settings.min_share, self.recipe.admission.min_rollouts_per_group
        enough = max(rounded_up(num_rollouts * share) + 2, least)
        return Quorum(queued=num_rollouts, enough=min(num_rollouts, enough))
