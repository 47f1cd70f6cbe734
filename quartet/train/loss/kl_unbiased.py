"""Loss term `kl_unbiased`: KL divergence to the reference policy, with an unbiased gradient on tokens of older
policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quartet.train.importance import bounded_exp
from quartet.train.loss.base import LossInput, LossTerm, weighted_sum
from quartet.train.loss.kl import Kl, k3

if TYPE_CHECKING:  # the command line validates a recipe without loading torch
    import torch


class KlUnbiased(LossTerm):
    """Mean over tokens of r * k3 in nats, with r = pi / mu and the k3 estimate of the term `kl`. mu is the policy that
    sampled the token.

    The ratio carries a gradient, so the expected gradient over tokens of mu is that of KL(policy || reference). Of the
    estimates of `kl` only `k2` has this gradient, and only on tokens that the trained policy sampled. TRL's default has
    this form; its tokens have no lag, so mu is there the policy before the train step.
    """

    needs = frozenset({"reference"})
    source = "DeepSeek-V3.2, arXiv 2512.02556"
    metrics = Kl.metrics

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        assert tokens.reference_logprobs_T is not None, "the term needs the pass `reference`"
        ratio_T = bounded_exp(tokens.logprobs_T - tokens.rollout_logprobs_T)
        divergence = weighted_sum(tokens, ratio_T * k3(tokens.logprobs_T, tokens.reference_logprobs_T))
        return divergence, {"reference_kl_nats": divergence.item()}
