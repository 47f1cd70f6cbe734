"""GSPO: the clipped surrogate with one ratio per response instead of one per token (arXiv 2507.18071)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quartet.train.importance import over_branches
from quartet.train.loss.base import LossInput
from quartet.train.loss.ppo_clip import PpoClip

if TYPE_CHECKING:  # the command line validates a recipe without loading torch
    import torch


class Gspo(PpoClip):
    """The loss of `ppo_clip` with s = exp(mean of log pi - log pi_old over a branch's trained tokens) at all of them.

    The gradient follows equation 14, "GSPO-token", as in verl: s_t = sg[s] * pi_t / sg[pi_t] has the value s at every
    token, and its gradient reaches that token alone. So each token keeps its own importance weight; differentiating
    through the mean would give all of them their average.

    With the loop `latest` a branch is one response, the sequence of DART's released code; with `append` it is a whole
    conversation. A mean moves less than a token's ratio, so the clip bounds must be smaller.
    """

    source = "GSPO, arXiv 2507.18071"

    def log_ratio(self, tokens: LossInput) -> torch.Tensor:
        log_ratio_T = super().log_ratio(tokens)
        means_T = over_branches(log_ratio_T, tokens.branches_T, mean=True)
        return means_T.detach() + log_ratio_T - log_ratio_T.detach()
