"""Decoupled PPO with a proximal policy interpolated between the policy that sampled and the trained policy (A-3PO)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quartet.train.loss.base import LossInput
from quartet.train.loss.ppo_clip import PpoClip

if TYPE_CHECKING:  # the command line validates a recipe without loading torch
    import torch


class PpoInterpolated(PpoClip):
    """The loss of `ppo_clip` with log pi_old = a * log pi_rollout + (1 - a) * sg[log pi], where a = 1 / max(lag, 1).

    In `ppo_clip` the proximal policy has the weights at the start of the train step, which is decoupled PPO (AReaL,
    arXiv 2505.24298). Here it is on the log-linear path from the policy that sampled to the trained policy, one train
    step before the end of the path. A token with lag 0 or 1 is compared with the policy that sampled it; the older a
    token is, the nearer its ratio is to 1. A-3PO saves the forward pass for the proximal policy; here the trainer still
    runs the pass for old log-probs where `ppo_clip` would, since metrics, other terms and members without recorded
    log-probs need it.
    """

    source = "A-3PO, arXiv 2512.06547; `compute_prox_logp_approximations` (loglinear) of AReaL"

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        assert tokens.lags_T is not None, "the trainer gives every token its lag"
        share_T = 1 / tokens.lags_T.clamp(min=1).to(tokens.logprobs_T.dtype)
        proximal_T = tokens.logprobs_T.detach().lerp(tokens.rollout_logprobs_T, share_T)
        return super().loss(tokens._replace(old_logprobs_T=proximal_T))
