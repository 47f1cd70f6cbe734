"""PPO's clipped surrogate with separate bounds (DAPO) and a bounded importance weight (DART, slime, AReaL)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from quartet.config.section import Fraction, PositiveFloat, Section
from quartet.train.loss.base import LossInput, LossTerm

if TYPE_CHECKING:  # the command line validates a recipe without loading torch
    import torch


MAX_LOG_RATIO = 20.0
"""Bound on log-ratios before `exp`, so that one extreme token cannot overflow a batch."""
_IMPORTANCE: dict[str, Callable[[torch.Tensor, float], torch.Tensor]] = {
    "truncate": lambda rho_T, cap: rho_T.clamp(max=cap),
    "mask": lambda rho_T, cap: rho_T.where(rho_T <= cap, 0.0),
    "none": lambda rho_T, cap: rho_T.new_ones(rho_T.shape),
}


class PpoClip(LossTerm):
    """Loss per token: -w * min(r * A, clip(r, 1 - low, 1 + high) * A), and for A < 0 at most -w * c * A.

    r = pi / pi_old carries the gradient. c is `dual_clip`, which bounds the loss where A < 0: `min` leaves it unbounded
    there (Yu and others, arXiv 1912.09729; verl's `clip_ratio_c`).

    w, from rho = pi_old / pi_rollout, is a constant. It corrects for the difference between the engine that sampled
    (another version, other arithmetic) and the trainer. `truncate`: w = min(rho, cap); `mask`: w = rho where rho <=
    cap, else 0; masked tokens stay in the denominator, as in AReaL. `none`: w = 1.
    """

    class Settings(Section):
        clip_low: Fraction = 0.2
        """Clip the ratio from below at 1 minus this."""
        clip_high: Annotated[float, Field(ge=0)] = 0.28
        """Clip the ratio from above at 1 plus this. Separate bounds are DAPO's clip-higher."""
        dual_clip: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 3.0
        """Upper bound of the ratio where the advantage is negative (dual-clip PPO; the default is verl's
        `clip_ratio_c`). It bounds the loss of a token that became much more likely and failed. 1e9 turns it off, since
        no ratio exceeds e^20."""
        importance: Literal["truncate", "mask", "none"] = "truncate"
        """Treatment of a token whose importance weight w = pi_train_old / pi_rollout, a constant, exceeds
        `importance_cap`: `truncate` sets the weight to the cap (DART with cap 1, slime with cap 2), `mask` to 0
        (AReaL's decoupled objective, cap 5). With `none` every weight is 1, as if the trainer's own policy had
        sampled."""
        importance_cap: PositiveFloat = 1.0
        """Largest importance weight."""

    settings: Settings
    metrics = {
        "train/clip_fraction": "1: share of tokens at the clip bound of the ratio",
        "train/dual_clip_fraction": "1: share of tokens with a negative advantage and a ratio above `dual_clip`",
        "train/ratio_mean": "1: mean ratio of new to old probability",
        "train/importance_mean": "1: mean importance weight (old over sampled probability), after the cap",
        "train/importance_capped_fraction": "1: share of importance weights above the cap",
    }
    source = "PPO, arXiv 1707.06347; DAPO, arXiv 2503.14476 (separate bounds); DART, arXiv 2509.23866 (importance)"

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        """Return the scalar loss and weighted-sum metrics. The effective sample size is importance_mean^2 /
        importance_square_mean."""
        advantages_T, weights_T = tokens.advantages_T, tokens.weights_T
        unbounded_T = bounded_exp(self.log_ratio(tokens))
        ratio_T = unbounded_T.where(advantages_T >= 0, unbounded_T.clamp(max=self.settings.dual_clip))
        clipped_T = ratio_T.clamp(1 - self.settings.clip_low, 1 + self.settings.clip_high)
        surrogate_T = (ratio_T * advantages_T).minimum(clipped_T * advantages_T)

        rho_T = bounded_exp((tokens.old_logprobs_T - tokens.rollout_logprobs_T).detach())
        importance_T = _IMPORTANCE[self.settings.importance](rho_T, self.settings.importance_cap)
        loss = -(weights_T * importance_T * surrogate_T).sum()
        metrics_T = {
            "clip_fraction": (clipped_T * advantages_T < ratio_T * advantages_T).float(),
            "dual_clip_fraction": (ratio_T < unbounded_T).float(),
            "ratio_mean": unbounded_T.detach(),
            "importance_mean": importance_T,
            "importance_square_mean": importance_T.square(),
            "importance_capped_fraction": (rho_T > self.settings.importance_cap).float(),
        }
        return loss, {name: float((weights_T * value_T).sum()) for name, value_T in metrics_T.items()}

    def log_ratio(self, tokens: LossInput) -> torch.Tensor:
        """Return log r of each token."""
        return tokens.logprobs_T - tokens.old_logprobs_T


def bounded_exp(log_ratio_T: torch.Tensor) -> torch.Tensor:
    return log_ratio_T.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
