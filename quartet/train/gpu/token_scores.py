"""Log-probs and entropies of tokens from logits of a large vocabulary, in few passes over the logits.

Forward and backward pass are one fused kernel each. Logits keep their data type, and the result is computed in float32,
so the only copy in memory besides the logits is their gradient.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.autograd.function import once_differentiable


class FusedTokenScores(torch.autograd.Function):
    """Autograd function of the log-probs of targets at the tokens' temperatures, and of the entropies at temperature
    1."""

    @staticmethod
    def forward(
        ctx: Any, logits_TV: torch.Tensor, targets_T: torch.Tensor, temperatures_T: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logprobs_T, entropies_T, *sums = _fused(scores, logits_TV)(logits_TV, targets_T, temperatures_T)
        ctx.save_for_backward(logits_TV, targets_T, temperatures_T, entropies_T, *sums)
        ctx.set_materialize_grads(False)
        return logprobs_T, entropies_T

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, of_logprobs_T: torch.Tensor | None, of_entropies_T: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        saved = ctx.saved_tensors
        if of_logprobs_T is None:
            of_logprobs_T = torch.zeros_like(saved[2])
        return _fused(slopes, saved[0])(of_logprobs_T, of_entropies_T, *saved), None, None


def scores(logits_TV: torch.Tensor, targets_T: torch.Tensor, temperatures_T: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return log-probs and entropies `[T]`, and for the backward pass the largest logit and, of the logits less the
    largest, the logarithms of the summed exponentials at temperature 1 and at the token's temperature."""
    largest_T = logits_TV.amax(dim=1).float()
    shifted_TV = logits_TV.float() - largest_T.unsqueeze(1)
    weights_TV = shifted_TV.exp()
    total_T = weights_TV.sum(dim=1)
    log_total_T = total_T.log()
    entropies_T = log_total_T - (weights_TV * shifted_TV).sum(dim=1) / total_T
    log_scaled_T = (shifted_TV / temperatures_T.unsqueeze(1)).exp().sum(dim=1).log()
    chosen_T = logits_TV.gather(1, targets_T.unsqueeze(1)).squeeze(1).float() - largest_T
    return chosen_T / temperatures_T - log_scaled_T, entropies_T, largest_T, log_total_T, log_scaled_T


def slopes(
    of_logprobs_T: torch.Tensor,
    of_entropies_T: torch.Tensor | None,
    logits_TV: torch.Tensor,
    targets_T: torch.Tensor,
    temperatures_T: torch.Tensor,
    entropies_T: torch.Tensor,
    largest_T: torch.Tensor,
    log_total_T: torch.Tensor,
    log_scaled_T: torch.Tensor,
) -> torch.Tensor:
    """Return the gradient of the logits.

    With p the probabilities at temperature 1, q those at the token's temperature t, y the target and H the entropy:
    d log q(y) / dx = (1[y] - q) / t and dH / dx = -p (log p + H).
    """
    shifted_TV = logits_TV.float() - largest_T.unsqueeze(1)
    q_TV = (shifted_TV / temperatures_T.unsqueeze(1) - log_scaled_T.unsqueeze(1)).exp()
    is_target_TV = torch.arange(logits_TV.shape[1], device=logits_TV.device) == targets_T.unsqueeze(1)
    found_TV = (of_logprobs_T / temperatures_T).unsqueeze(1) * (is_target_TV.float() - q_TV)
    if of_entropies_T is not None:
        log_p_TV = shifted_TV - log_total_T.unsqueeze(1)
        found_TV = found_TV - of_entropies_T.unsqueeze(1) * log_p_TV.exp() * (log_p_TV + entropies_T.unsqueeze(1))
    return found_TV.to(logits_TV.dtype)


def _fused(function: Callable[..., Any], like: torch.Tensor) -> Callable[..., Any]:
    """Return the function as one kernel on a GPU, and as it is on a CPU, on which it is only tested."""
    return _compiled(function) if like.is_cuda else function


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=True)
