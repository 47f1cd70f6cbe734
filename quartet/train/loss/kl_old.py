"""Loss term `kl_old`: KL divergence between the policy and the policy at the start of the train step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quartet.train.loss.base import LossInput
from quartet.train.loss.kl import Kl

if TYPE_CHECKING:  # the command line validates a recipe without loading torch
    import torch


class KlOld(Kl):
    """Mean over tokens of an estimate of KL(policy || policy at the start of the train step) in nats.

    The term limits the change within a train step, as clipping the ratio does, but not the change over many train
    steps. Together with `kl`, the loss has ReMix's convex mix of two references. The first optimizer step of a train
    step starts at the reference, where the penalty is 0.
    """

    needs = frozenset[str]()
    source = "PPO's KL penalty, arXiv 1707.06347, section 4; mix of references: ReMix, arXiv 2507.06892"
    metrics = {"train/old_kl_nats": "nats: divergence from the start of the train step, with the loss term `kl_old`"}

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        divergence = self.divergence(tokens, tokens.old_logprobs_T)
        return divergence, {"old_kl_nats": divergence.item()}
