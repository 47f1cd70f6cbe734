"""XRPO's novelty bonus: GRPO with larger advantages for successes that the policy seldom samples."""

from typing import Annotated

import numpy as np
from pydantic import Field

from quartet.train.credit.base import Credit
from quartet.train.credit.grpo import Grpo
from quartet.train.credit_batch import CreditBatch


class Xrpo(Credit):
    """Advantage of GRPO; advantages above zero are raised by min(max(weight * (1 - novelty), 0), max_share * A).

    Let s be the mean log-prob of a rollout's sampled tokens. The novelty is exp(s - mean of s over the group), below 1
    for a rollout that is less likely than others. A rollout whose log-probs are not all known gets no bonus and does
    not count in the mean, and s of a fork covers only its own tokens. Advantages below zero stay as they are: the same
    formula would lower them.
    """

    class Settings(Grpo.Settings):
        novelty_weight: Annotated[float, Field(ge=0)] = 2.5
        """Factor on 1 - novelty."""
        max_share: Annotated[float, Field(ge=0)] = 0.5
        """Largest bonus, as a share of the advantage; 0 is GRPO."""

    settings: Settings
    source = "XRPO, advantage sharpening by novelty; the allocation of rollouts and the seeded prompts are left out"

    def assign(self, batch: CreditBatch) -> None:
        batch.assign_members(batch.over_groups(self._sharpened, batch.rewards_N, batch.member_means(batch.logprobs_T)))

    def _sharpened(self, rewards_N: np.ndarray, scores_N: np.ndarray) -> np.ndarray:
        advantages_N, known_N = Grpo(self.settings).normalised(rewards_N), np.isfinite(scores_N)
        if not known_N.any():
            return advantages_N
        novelty_N = np.exp(np.where(known_N, scores_N - scores_N[known_N].mean(), 0.0))
        bonus_N = (self.settings.novelty_weight * (1 - novelty_N)).clip(min=0)
        return advantages_N + np.minimum(bonus_N, self.settings.max_share * advantages_N.clip(min=0))
