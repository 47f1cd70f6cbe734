"""GSPO: the clipped surrogate with one ratio per response instead of one per token (arXiv 2507.18071)."""

import torch

from quartet.train.loss.base import LossInput
from quartet.train.loss.ppo_clip import PpoClip


class Gspo(PpoClip):
    """As `ppo_clip`, with r = exp(mean of log pi - log pi_old over the trained tokens of the branch) at all of them.

    With the loop `latest` a branch is one response, the sequence of DART's released code; a whole conversation
    (`append`) is one branch. Bounds are of another size than a token's: a mean moves less.
    """

    def log_ratio(self, tokens: LossInput) -> torch.Tensor:
        log_ratio_T, branches_T = super().log_ratio(tokens), tokens.branches_T
        size = int(branches_T.max()) + 1
        sums = log_ratio_T.new_zeros(size).index_add(0, branches_T, log_ratio_T)
        counts = torch.bincount(branches_T, minlength=size).clamp(min=1)
        return (sums / counts)[branches_T]
