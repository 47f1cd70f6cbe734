"""PPO as one would write it for data of one's own: the loss that old data is said to break."""

import torch

from quartet.train.loss.base import LossInput
from quartet.train.loss.ppo_clip import PpoClip


class NaivePpo(PpoClip):
    """As `ppo_clip`, with r = pi / pi_rollout, clipped around 1, and weight 1: it takes the policy that sampled for the
    one it starts from. AReaL's "naive PPO" (arXiv 2505.24298)."""

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        return super().loss(tokens._replace(old_logprobs_T=tokens.rollout_logprobs_T))
