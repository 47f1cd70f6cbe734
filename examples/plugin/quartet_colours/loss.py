"""REINFORCE with a bounded importance weight, and a metric of its own."""

from typing import ClassVar

import torch

from quartet.config.section import PositiveFloat, Section
from quartet.train.importance import bounded_exp
from quartet.train.loss.base import LossInput, LossTerm


class Reinforce(LossTerm):
    """Loss per token: -min(w, cap) * A * log pi, with the importance weight w = pi_old / pi_rollout, a constant."""

    class Settings(Section):
        importance_cap: PositiveFloat = 1.0
        """Largest importance weight."""

    settings: Settings
    metrics: ClassVar = {"train/pushed_up_fraction": "1: share of tokens with a positive advantage"}

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        weights_T, advantages_T = tokens.weights_T, tokens.advantages_T
        rho_T = bounded_exp((tokens.old_logprobs_T - tokens.rollout_logprobs_T).detach())
        importance_T = rho_T.clamp(max=self.settings.importance_cap)
        loss = -(weights_T * importance_T * advantages_T * tokens.logprobs_T).sum()
        return loss, {"pushed_up_fraction": float((weights_T * (advantages_T > 0)).sum())}
