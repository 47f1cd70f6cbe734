"""Brancher that forks before calls in which the policy was uncertain."""

from collections.abc import Sequence

from quartet.config.section import Positive, PositiveFloat, Section
from quartet.rollout.brancher.base import Brancher
from quartet.types import Call


class EntropyBrancher(Brancher):
    """Fork before each call in whose response a token was drawn from a distribution of high entropy.

    Without forks, a group seldom compares two responses after the same prefix. ARPO branches at random, with a higher
    probability where the entropy of the next tokens has risen since the start of a rollout. Here a threshold decides,
    so that a retry and an audit find the same forks. A child is not forked again before the call at which it was forked
    itself.
    """

    class Settings(Section):
        min_entropy_nats: PositiveFloat = 0.5
        """Entropy that at least one token of a call must reach for the call to be forked."""
        children: Positive = 1
        """Number of children forked before such a call."""

    settings: Settings
    reads_entropies = True
    source = "after ARPO, arXiv 2507.19849, with a threshold instead of its probability"

    def forks(self, call: Call, so_far: Sequence[Call]) -> int:
        uncertain = max(call.response.entropies, default=0.0) >= self.settings.min_entropy_nats
        return self.settings.children if uncertain and not call.borrowed else 0
