"""Advantage-weighted regression: maximum likelihood of sampled tokens, weighted by the exponential of the advantage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quartet.config.section import PositiveFloat, Section
from quartet.train.importance import MAX_LOG_RATIO
from quartet.train.loss.base import LossInput, LossTerm, weighted_sum, weighted_sums

if TYPE_CHECKING:  # the command line validates a recipe without loading torch
    import torch


class Awr(LossTerm):
    """Loss per token: -min(exp(A / temperature), cap) * log pi.

    The term needs no log-prob of the policy that sampled, so it suits stored rollouts. A token with advantage 0 is
    imitated too, with weight 1. With a low temperature, tokens with the highest advantages dominate.
    """

    class Settings(Section):
        temperature: PositiveFloat = 1.0
        """Advantage that multiplies a token's weight by e. The default is that of the released code, for normalised
        advantages."""
        weight_cap: PositiveFloat = 20.0
        """Largest weight of a token."""

    settings: Settings
    metrics = {
        "train/awr_weight_mean": "1: mean weight of a token in the loss term `awr`, after the cap",
        "train/awr_capped_fraction": "1: share of tokens at the largest weight of the loss term `awr`",
    }
    source = "Advantage-weighted regression, arXiv 1910.00177, algorithm 1, and its released code"

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        cap = self.settings.weight_cap
        uncapped_T = (tokens.advantages_T / self.settings.temperature).clamp(max=MAX_LOG_RATIO).exp()
        weights_T = uncapped_T.clamp(max=cap)
        metrics_T = {"awr_weight_mean": weights_T, "awr_capped_fraction": (uncapped_T > cap).float()}
        loss = -weighted_sum(tokens, weights_T * tokens.logprobs_T)
        return loss, weighted_sums(tokens, metrics_T)
