"""ECHO's hybrid advantage: larger at uncertain tokens."""

from typing import Annotated

import numpy as np
from pydantic import Field

from quartet.train.baseline import whitened
from quartet.train.credit.base import Credit
from quartet.train.credit.grpo import Grpo
from quartet.train.credit_batch import CreditBatch


class Echo(Credit):
    """Advantage: GRPO's, times 1 + `weight` * S, where S = z(entropy) + z(1 - confidence), within +-`max_score`.

    z normalises over the trained tokens of the batch. The released code takes the mean probability of the five most
    likely tokens for the confidence. Here it is the recorded probability of the sampled token, whose mean is as
    informative and which every engine reports. A token with an unknown entropy or log-prob has S = 0.
    """

    class Settings(Grpo.Settings):
        weight: Annotated[float, Field(ge=0)] = 0.1
        """Factor of the score S; 0 is GRPO."""
        max_score: Annotated[float, Field(gt=0)] = 2.0
        """Bound of |S|."""

    settings: Settings
    needs = frozenset({"entropies"})
    source = "ECHO, hybrid advantage of its released code, core_algos.py; the confidence is our reading"

    def assign(self, batch: CreditBatch) -> None:
        batch.assign_members(batch.over_groups(Grpo(self.settings).normalised, batch.rewards_N))
        batch.advantages_T *= 1 + self.settings.weight * self._scores(batch)

    def _scores(self, batch: CreditBatch) -> np.ndarray:
        assert batch.entropies_T is not None
        known_T = batch.mask_T & np.isfinite(batch.entropies_T) & np.isfinite(batch.logprobs_T)
        doubts_T = np.zeros(len(known_T))
        doubts_T[known_T] = 1 - np.exp(batch.logprobs_T[known_T])
        scores_T = whitened(batch.entropies_T, known_T) + whitened(doubts_T, known_T)
        return scores_T.clip(-self.settings.max_score, self.settings.max_score)
