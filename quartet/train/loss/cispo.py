"""CISPO: a policy gradient whose clipped ratio is a constant weight, so that no token loses its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from quartet.config.section import Fraction
from quartet.train.importance import METRICS, ImportanceSettings, bounded_exp, importance_weights
from quartet.train.loss.base import LossInput, LossTerm, weighted_sum, weighted_sums

if TYPE_CHECKING:  # the command line validates a recipe without loading torch
    import torch


class Cispo(LossTerm):
    """Loss per token: -w * sg[clip(r, 1 - low, 1 + high)] * A * log pi, with r = pi / pi_old.

    In `ppo_clip` a token beyond the clip bound has no gradient; here it has one, with a bounded weight. The paper tunes
    only the upper bound. w is the importance weight of `ppo_clip`.
    """

    class Settings(ImportanceSettings):
        clip_low: Fraction = 1.0
        """Clip the ratio from below at 1 minus this; 1 turns the bound off, as in the paper."""
        clip_high: Annotated[float, Field(ge=0)] = 4.0
        """Clip the ratio from above at 1 plus this. The paper gives no number; a ratio of at most 5 is from ScaleRL
        (arXiv 2510.13786)."""

    settings: Settings
    metrics = METRICS | {
        "train/clip_fraction": "1: share of tokens at the clip bound of the ratio",
        "train/ratio_mean": "1: mean ratio of new to old probability",
    }
    source = "CISPO: MiniMax-M1, arXiv 2506.13585, equations 4 and 5"

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        ratio_T = bounded_exp((tokens.logprobs_T - tokens.old_logprobs_T).detach())
        clipped_T = ratio_T.clamp(1 - self.settings.clip_low, 1 + self.settings.clip_high)
        log_rho_T = tokens.old_logprobs_T - tokens.rollout_logprobs_T
        importance_T, metrics_T = importance_weights(log_rho_T, tokens.branches_T, self.settings)
        loss = -weighted_sum(tokens, importance_T * clipped_T * tokens.advantages_T * tokens.logprobs_T)
        metrics_T |= {"clip_fraction": (clipped_T != ratio_T).float(), "ratio_mean": ratio_T}
        return loss, weighted_sums(tokens, metrics_T)
