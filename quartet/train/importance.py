"""Importance weights, which correct for tokens sampled by an older version, or by an engine with other arithmetic.

The weight of a token is w = pi_train_old / pi_rollout. `pi_train_old` is the denominator of the ratio in the loss,
`pi_rollout` the policy that sampled the token. Published methods are these settings:

| method | settings |
|---|---|
| truncated importance sampling (TIS) | `truncate`; at the level `branch` the product over a sequence |
| masked importance sampling (MIS), AReaL | `mask` |
| IcePop | `mask` with a floor and a cap, for example 0.5 and 5 |
| rejection by the geometric mean (Geo-RS) | `mask` at the level `branch_mean`, with a floor and a cap near 1 |
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from quartet.config.section import PositiveFloat, Section

if TYPE_CHECKING:  # the command line validates a recipe without loading torch
    import torch

MAX_LOG_RATIO = 20.0
"""Bound on log-ratios before `exp`, so that one extreme token cannot overflow a batch."""
AGREEMENT = 1e-4
"""Relative change up to which a weight counts as unchanged: the log-probs of engine and trainer differ by as much in
float32, and a cap of 1 would otherwise count half of all tokens."""
METRICS = {
    "train/importance_mean": "1: mean importance weight (old over sampled probability), after the cap",
    "train/importance_capped_fraction": "1: share of importance weights above the cap or below the floor",
}


class ImportanceSettings(Section):
    """Settings of a loss term that weighs its tokens."""

    importance: Literal["truncate", "mask", "none"] = "truncate"
    """Treatment of a token whose importance weight w = pi_train_old / pi_rollout, a constant, exceeds `importance_cap`
    or is below `importance_floor`: `truncate` sets the weight to the bound (DART with cap 1, slime with cap 2), `mask`
    to 0 (AReaL's decoupled objective, cap 5; IcePop, floor 0.5 and cap 5). With `none` every weight is 1, as if the
    policy at the start of the train step had sampled the tokens."""
    importance_level: Literal["token", "branch", "branch_mean"] = "token"
    """Weight of a token: its own ratio, the product of all ratios of its branch, or their geometric mean."""
    importance_floor: Annotated[float, Field(ge=0)] = 0.0
    """Smallest importance weight."""
    importance_cap: PositiveFloat = 1.0
    """Largest importance weight."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.importance_floor > self.importance_cap:
            raise ValueError("importance_floor is above importance_cap -> lower the first, or raise the second")
        return self


_BOUND: dict[str, Callable[["torch.Tensor", float, float], "torch.Tensor"]] = {
    "truncate": lambda rho_T, floor, cap: rho_T.clamp(floor, cap),
    "mask": lambda rho_T, floor, cap: rho_T.where((rho_T >= floor) & (rho_T <= cap), 0.0),
    "none": lambda rho_T, floor, cap: rho_T.new_ones(rho_T.shape),
}


def importance_weights(
    log_rho_T: "torch.Tensor", branches_T: "torch.Tensor", settings: ImportanceSettings
) -> tuple["torch.Tensor", dict[str, "torch.Tensor"]]:
    """Return the constant weights of the tokens and the values of the metrics.

    The effective sample size is importance_mean^2 / importance_square_mean.
    """
    log_rho_T = log_rho_T.detach()
    if settings.importance_level != "token":
        log_rho_T = over_branches(log_rho_T, branches_T, mean=settings.importance_level == "branch_mean")
    rho_T, floor, cap = bounded_exp(log_rho_T), settings.importance_floor, settings.importance_cap
    weights_T = _BOUND[settings.importance](rho_T, floor, cap)
    bounded_T = ((weights_T - rho_T).abs() > AGREEMENT * rho_T) & (settings.importance != "none")
    return weights_T, {
        "importance_mean": weights_T,
        "importance_square_mean": weights_T.square(),
        "importance_capped_fraction": bounded_T.to(rho_T.dtype),
    }


def over_branches(values_T: "torch.Tensor", branches_T: "torch.Tensor", *, mean: bool) -> "torch.Tensor":
    """Return `[T]`: the sum or the mean of the values of each token's branch."""
    size = int(branches_T.max()) + 1
    sums = values_T.new_zeros(size).index_add(0, branches_T, values_T)
    return (sums / branches_T.bincount(minlength=size).clamp(min=1) if mean else sums)[branches_T]


def bounded_exp(log_ratio_T: "torch.Tensor") -> "torch.Tensor":
    """Return e^x with x bounded to `MAX_LOG_RATIO` on both sides."""
    return log_ratio_T.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
