"""PPO without a correction for lag, which is said to fail with old data."""

import torch

from quartet.train.loss.base import LossInput
from quartet.train.loss.ppo_clip import PpoClip


class NaivePpo(PpoClip):
    """Like `ppo_clip` with r = pi / pi_rollout, clipped around 1, and importance weight 1.

    It treats the policy that sampled as the policy before the train step: AReaL's "naive PPO" (arXiv 2505.24298).
    """

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        return super().loss(tokens._replace(old_logprobs_T=tokens.rollout_logprobs_T))
