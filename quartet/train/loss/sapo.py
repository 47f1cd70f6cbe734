"""SAPO: a smooth gate on the ratio instead of a clip."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quartet.config.section import PositiveFloat
from quartet.train.importance import METRICS, ImportanceSettings, bounded_exp, importance_weights
from quartet.train.loss.base import LossInput, LossTerm, weighted_sum, weighted_sums

if TYPE_CHECKING:  # the command line validates a recipe without loading torch
    import torch


class Sapo(LossTerm):
    """Loss per token: -w * (4 / tau) * sigmoid(tau * (r - 1)) * A, with r = pi / pi_old and a tau for each sign of A.

    At r = 1 the gradient equals the policy gradient. It falls smoothly on both sides, and faster with a larger tau. w
    is the importance weight of `ppo_clip`.
    """

    class Settings(ImportanceSettings):
        tau_positive: PositiveFloat = 1.0
        """Steepness of the gate of tokens with a positive advantage."""
        tau_negative: PositiveFloat = 1.05
        """Steepness of the gate of tokens with a negative advantage, whose updates are less stable."""

    settings: Settings
    metrics = METRICS | {"train/ratio_mean": "1: mean ratio of new to old probability"}
    source = "SAPO, arXiv 2511.20347"

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        ratio_T, advantages_T = bounded_exp(tokens.logprobs_T - tokens.old_logprobs_T), tokens.advantages_T
        tau_T = advantages_T.new_full(advantages_T.shape, self.settings.tau_negative)
        tau_T = tau_T.masked_fill(advantages_T > 0, self.settings.tau_positive)
        gate_T = 4 / tau_T * (tau_T * (ratio_T - 1)).sigmoid()
        log_rho_T = tokens.old_logprobs_T - tokens.rollout_logprobs_T
        importance_T, metrics_T = importance_weights(log_rho_T, tokens.branches_T, self.settings)
        loss = -weighted_sum(tokens, importance_T * gate_T * advantages_T)
        return loss, weighted_sums(tokens, metrics_T | {"ratio_mean": ratio_T.detach()})
