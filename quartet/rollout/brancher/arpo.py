"""Brancher of ARPO: forks at random, more often where the entropy has risen since the start of the rollout."""

from collections.abc import Sequence
from random import Random
from statistics import fmean
from typing import Annotated

from pydantic import Field

from quartet.config.section import Fraction, Positive, Section
from quartet.rollout.brancher.base import Brancher
from quartet.types import Call


class ArpoBrancher(Brancher):
    """Fork before a call with probability `probability + weight_per_nat * (H - H_first)`, clipped to 0..1.

    H is the mean entropy of the first `tokens` tokens of the call's response, H_first that of the rollout's first call.
    The released code sums these entropies and divides by the logarithm of the vocabulary's size. Here the mean is in
    nats, so that a short response counts as much as a long one. The random numbers are derived from the call's sampling
    seed, so that a retry and an audit find the same forks. A child is not forked again before the call at which it was
    forked itself.
    """

    class Settings(Section):
        probability: Fraction = 0.5
        """Probability of each child where the entropy is as in the first call."""
        weight_per_nat: Annotated[float, Field(ge=0)] = 0.2
        """Increase of the probability per nat by which the entropy has risen."""
        tokens: Positive = 20
        """Number of tokens at the beginning of a response whose entropies are averaged."""
        children: Positive = 1
        """Maximum number of children before a call. Each is drawn independently."""

    settings: Settings
    reads_entropies = True
    source = "ARPO, arXiv 2507.19849, section 3.1; released code, vllm_rollout_with_tools.py"

    def fork_probability(self, call: Call, first: Call) -> float:
        """Return the probability of each child before `call`, in a rollout whose first call is `first`."""
        rise = self._entropy_nats(call) - self._entropy_nats(first)
        return min(1.0, max(0.0, self.settings.probability + self.settings.weight_per_nat * rise))

    def forks(self, call: Call, so_far: Sequence[Call]) -> int:
        if call.borrowed:
            return 0
        probability = self.fork_probability(call, so_far[0])
        draws = Random(f"{call.sampling.seed}/fork")
        return sum(draws.random() < probability for _ in range(self.settings.children))

    def _entropy_nats(self, call: Call) -> float:
        # A child borrows its first call with the parent's entropies. An empty response counts as certain.
        entropies = call.response.entropies[: self.settings.tokens]
        return fmean(entropies) if entropies else 0.0
