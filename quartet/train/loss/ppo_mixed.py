"""ReMix's clipped surrogate for batches of old and new rollouts, with clip bounds around pi_old / pi_rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from quartet.config.section import Section
from quartet.train.importance import bounded_exp
from quartet.train.loss.base import LossInput, LossTerm, weighted_sum, weighted_sums

if TYPE_CHECKING:  # the command line validates a recipe without loading torch
    import torch


class PpoMixed(LossTerm):
    """Loss per token: -min(r * A, clip(r, c - clip, c + clip) * A), r = pi / pi_rollout, c = pi_old / pi_rollout.

    If r were clipped around 1, tokens on which the policy has changed since they were sampled would start outside the
    bounds. Around c, each token starts in the middle of its bounds. The importance weight is part of r and has no cap.
    On tokens of the newest version the term equals PPO.
    """

    class Settings(Section):
        clip: Annotated[float, Field(gt=0)] = 0.2
        """Distance of the clip bounds from their centre c."""

    settings: Settings
    metrics = {
        "train/clip_fraction": "1: share of tokens at the clip bound of the ratio",
        "train/clip_center_mean": "1: mean ratio of old to sampled probability, the centre of the clip of `ppo_mixed`",
    }
    source = "ReMix, arXiv 2507.06892"

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        ratio_T = bounded_exp(tokens.logprobs_T - tokens.rollout_logprobs_T)
        center_T = bounded_exp(tokens.old_logprobs_T - tokens.rollout_logprobs_T).detach()
        clipped_T = ratio_T.clamp(center_T - self.settings.clip, center_T + self.settings.clip)
        plain_T, bound_T = ratio_T * tokens.advantages_T, clipped_T * tokens.advantages_T
        metrics_T = {"clip_fraction": (bound_T < plain_T).float(), "clip_center_mean": center_T}
        return -weighted_sum(tokens, plain_T.minimum(bound_T)), weighted_sums(tokens, metrics_T)
