"""Brancher of ECHO: forks where the policy is uncertain, becomes less certain, and has little confidence."""

from collections.abc import Sequence
from math import exp
from statistics import fmean
from typing import Annotated

from pydantic import Field

from quartet.config.section import Fraction, Positive, PositiveFloat, Section
from quartet.rollout.brancher.base import Brancher
from quartet.types import Call


class EchoBrancher(Brancher):
    """Fork before a call if its entropy is high and has risen, and the confidence of the latest calls is low.

    The entropy H of a call is the mean over its tokens, its rise is H minus the mean of the `window` calls before. The
    confidence c is the mean probability of the sampled tokens in the call and these. The number of children is 1 +
    `entropy_width` * (H / `min_entropy_nats` - 1) + `doubt_width` * (1 - c / `max_confidence`), rounded, from 1 to
    `max_children`. A child is not forked again before the call at which it was forked itself.

    ECHO branches at tokens; here a call is the unit. Its released thresholds (3.5 nats) exceed the largest entropy of
    the ten most likely tokens from which that code computes it (2.3 nats), so it never branches. The defaults here are
    in nats of the whole distribution, and depend on the policy: choose quantiles of what it has at first. Pruning of
    running rollouts is left out, because a brancher does not end its rollout.
    """

    class Settings(Section):
        min_entropy_nats: PositiveFloat = 0.5
        """Smallest entropy of a call that is forked."""
        min_rise_nats: Annotated[float, Field(ge=0)] = 0.0
        """Smallest rise of the entropy."""
        max_confidence: Annotated[float, Field(gt=0, le=1)] = 0.8
        """Largest confidence at which a call is forked."""
        window: Positive = 4
        """Number of earlier calls for rise and confidence."""
        entropy_width: Fraction = 1.0
        """Further children per relative excess of the entropy."""
        doubt_width: Fraction = 1.0
        """Further children per relative lack of confidence."""
        max_children: Positive = 4
        """Maximum number of children before a call."""

    settings: Settings
    reads_entropies = True
    source = "ECHO, branching by entropy and confidence of its released code, deepconf_branching.py; calls for tokens"

    def forks(self, call: Call, so_far: Sequence[Call]) -> int:
        settings, before = self.settings, so_far[-self.settings.window :]
        entropy, earlier = _mean(call.response.entropies), fmean(_mean(one.response.entropies) for one in before)
        confidence = 1 - fmean(_mean(doubts_of(one)) for one in (*before, call))
        if call.borrowed or entropy < settings.min_entropy_nats or entropy - earlier < settings.min_rise_nats:
            return 0
        if confidence > settings.max_confidence:
            return 0
        excess, lack = entropy / settings.min_entropy_nats - 1, 1 - confidence / settings.max_confidence
        width = 1 + settings.entropy_width * excess + settings.doubt_width * lack
        return max(1, min(settings.max_children, round(width)))


def doubts_of(call: Call) -> list[float]:
    """Return 1 - the probability of each sampled token."""
    return [1 - exp(logprob) for logprob in call.response.logprobs]


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0
