"""PPO's clipped surrogate with separate bounds (DAPO) and a bounded importance weight (DART, slime, AReaL)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from quartet.config.section import Fraction
from quartet.train.importance import METRICS, ImportanceSettings, bounded_exp, importance_weights
from quartet.train.loss.base import LossInput, LossTerm, weighted_sum, weighted_sums

if TYPE_CHECKING:  # the command line validates a recipe without loading torch
    import torch


class PpoClip(LossTerm):
    """Loss per token: -w * min(r * A, clip(r, 1 - low, 1 + high) * A), and for A < 0 at most -w * c * A.

    r = pi / pi_old carries the gradient. c is `dual_clip`, which bounds the loss where A < 0, since the `min` of PPO
    does not bound it there (Yu and others, arXiv 1912.09729; verl's `clip_ratio_c`).

    w, from rho = pi_old / pi_rollout, is a constant. It corrects for the difference between the distribution that the
    engine sampled from (an older version, other arithmetic) and the trainer's. `truncate`: w = min(rho, cap); `mask`: w
    = rho where rho <= cap, else 0; masked tokens stay in the denominator, as in AReaL. `none`: w = 1.
    """

    class Settings(ImportanceSettings):
        clip_low: Fraction = 0.2
        """Clip the ratio from below at 1 minus this."""
        clip_high: Annotated[float, Field(ge=0)] = 0.28
        """Clip the ratio from above at 1 plus this. Separate bounds are DAPO's clip-higher."""
        dual_clip: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 3.0
        """Upper bound of the ratio where the advantage is negative (dual-clip PPO; the default is verl's
        `clip_ratio_c`). It bounds the loss of a token that became much more likely and failed. 1e9 turns it off, since
        no ratio exceeds e^20."""

    settings: Settings
    metrics = METRICS | {
        "train/clip_fraction": "1: share of tokens at the clip bound of the ratio",
        "train/dual_clip_fraction": "1: share of tokens with a negative advantage and a ratio above `dual_clip`",
        "train/ratio_mean": "1: mean ratio of new to old probability",
    }
    source = "PPO, arXiv 1707.06347; DAPO, arXiv 2503.14476 (separate bounds); DART, arXiv 2509.23866 (importance)"

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        advantages_T = tokens.advantages_T
        unbounded_T = bounded_exp(self.log_ratio(tokens))
        ratio_T = unbounded_T.where(advantages_T >= 0, unbounded_T.clamp(max=self.settings.dual_clip))
        scale = self.clip_scale(tokens)
        bounds: Any = 1 - scale * self.settings.clip_low, 1 + scale * self.settings.clip_high  # two numbers or tensors
        clipped_T = ratio_T.clamp(*bounds)
        surrogate_T = (ratio_T * advantages_T).minimum(clipped_T * advantages_T)

        log_rho_T = tokens.old_logprobs_T - tokens.rollout_logprobs_T
        importance_T, metrics_T = importance_weights(log_rho_T, tokens.branches_T, self.settings)
        loss = -weighted_sum(tokens, importance_T * surrogate_T)
        metrics_T |= {
            "clip_fraction": (clipped_T * advantages_T < ratio_T * advantages_T).float(),
            "dual_clip_fraction": (ratio_T < unbounded_T).float(),
            "ratio_mean": unbounded_T.detach(),
        }
        return loss, weighted_sums(tokens, metrics_T)

    def clip_scale(self, tokens: LossInput) -> torch.Tensor | float:
        """Return the factor on both bounds: `[T]`, or one number for all tokens."""
        return 1.0

    def log_ratio(self, tokens: LossInput) -> torch.Tensor:
        """Return log r of each token."""
        return tokens.logprobs_T - tokens.old_logprobs_T
