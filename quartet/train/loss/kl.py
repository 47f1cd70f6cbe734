"""Distance to the reference policy: the k3 estimate of the KL divergence, as in GRPO (DeepSeekMath, equation 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quartet.train.loss.base import LossInput, LossTerm, weighted_sum

if TYPE_CHECKING:  # the command line validates a recipe without loading torch
    import torch


class Kl(LossTerm):
    """Mean over tokens of an estimate of KL(policy || reference) in nats, at most 10 per token.

    The reference is the policy that the run started from.
    """

    needs = frozenset({"reference"})
    source = "DeepSeekMath, arXiv 2402.03300, equation 4; bounds of `kl_penalty` in verl's core_algos.py"
    metrics = {"train/reference_kl_nats": "nats: divergence from the reference policy, with the loss term `kl`"}

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        assert tokens.reference_logprobs_T is not None, "the term needs the pass `reference`"
        divergence = weighted_sum(tokens, k3(tokens.logprobs_T, tokens.reference_logprobs_T))
        return divergence, {"reference_kl_nats": divergence.item()}


def k3(logprobs_T: torch.Tensor, reference_logprobs_T: torch.Tensor) -> torch.Tensor:
    """Return Schulman's non-negative k3 estimate of KL(policy || reference) per token, in nats, at most 10.

    The bounds on the log-ratio before `exp` and on the estimate follow `kl_penalty` in verl's `core_algos.py`; with
    them one token cannot outweigh a batch. A token at the bound has no gradient; the others have 1 - pi_ref / pi.
    """
    log_ratio_T = (reference_logprobs_T - logprobs_T).clamp(-20, 20)
    return (log_ratio_T.exp() - log_ratio_T - 1).clamp(max=10)
