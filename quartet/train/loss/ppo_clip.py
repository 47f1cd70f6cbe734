"""PPO's clipped surrogate with separate bounds (DAPO) and a bounded importance weight (DART, slime, AReaL)."""

from collections.abc import Callable

import torch

from quartet.config import Loss
from quartet.train.loss.base import LossInput

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped here before `exp`, so that one absurd token cannot overflow a batch."""
_IMPORTANCE: dict[str, Callable[[torch.Tensor, float], torch.Tensor]] = {
    "truncate": lambda rho_T, cap: rho_T.clamp(max=cap),
    "mask": lambda rho_T, cap: rho_T.where(rho_T <= cap, 0.0),
    "none": lambda rho_T, cap: torch.ones_like(rho_T),
}


class PpoClip:
    """Per token: -w * min(r * A, clip(r, 1 - low, 1 + high) * A), and for A < 0 at most -w * c * A.

    r = pi / pi_old carries the gradient. c, `dual_clip`, bounds the loss where A < 0, which `min` leaves open (Yu and
    others, arXiv 1912.09729; verl's `clip_ratio_c`).

    w, from rho = pi_old / pi_rollout, is a constant: it corrects for the distance between the engine that sampled
    (another version, other arithmetic) and the trainer. `truncate`: w = min(rho, cap); `mask`: w = rho where
    rho <= cap, else 0; masked tokens stay in the denominator, as in AReaL. `none`: w = 1.
    """

    def __init__(self, section: Loss) -> None:
        self._low, self._high, self._dual = section.clip_low, section.clip_high, section.dual_clip
        self._importance, self._cap = _IMPORTANCE[section.importance], section.importance_cap

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        """Scalar loss and weighted-sum metrics: `importance_square_mean` gives the effective sample size
        importance_mean^2 / importance_square_mean."""
        advantages_T, weights_T = tokens.advantages_T, tokens.weights_T
        unbounded_T = bounded_exp(self.log_ratio(tokens))
        ratio_T = unbounded_T.where(advantages_T >= 0, unbounded_T.clamp(max=self._dual))
        clipped_T = ratio_T.clamp(1 - self._low, 1 + self._high)
        surrogate_T = torch.minimum(ratio_T * advantages_T, clipped_T * advantages_T)

        rho_T = bounded_exp((tokens.old_logprobs_T - tokens.rollout_logprobs_T).detach())
        importance_T = self._importance(rho_T, self._cap)
        loss = -(weights_T * importance_T * surrogate_T).sum()
        metrics_T = {
            "clip_fraction": (clipped_T * advantages_T < ratio_T * advantages_T).float(),
            "dual_clip_fraction": (ratio_T < unbounded_T).float(),
            "ratio_mean": unbounded_T.detach(),
            "importance_mean": importance_T,
            "importance_square_mean": importance_T.square(),
            "importance_capped_fraction": (rho_T > self._cap).float(),
        }
        return loss, {name: float((weights_T * value_T).sum()) for name, value_T in metrics_T.items()}

    def log_ratio(self, tokens: LossInput) -> torch.Tensor:
        """log r at each token."""
        return tokens.logprobs_T - tokens.old_logprobs_T


def bounded_exp(log_ratio_T: torch.Tensor) -> torch.Tensor:
    return log_ratio_T.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
