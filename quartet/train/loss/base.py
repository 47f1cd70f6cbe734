"""The policy loss protocol."""

from typing import NamedTuple, Protocol

import torch


class LossInput(NamedTuple):
    """Flat per-token tensors of one microbatch, response tokens only; T = number of response tokens."""

    logprobs_T: torch.Tensor
    """Under the weights being trained; carries the gradient."""
    old_logprobs_T: torch.Tensor
    """Under the weights at the start of the train step, from the trainer's own pass."""
    rollout_logprobs_T: torch.Tensor
    """Recorded by the engine at sampling."""
    advantages_T: torch.Tensor
    weights_T: torch.Tensor
    """Aggregation weights: 0 for masked tokens; over a whole minibatch they sum to 1."""
    branches_T: torch.Tensor
    """Number of the token's branch in the microbatch, from 0; a branch is never cut."""


class PolicyLoss(Protocol):
    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        """Scalar loss to minimise (a weighted sum, so that microbatches add up) and metrics (weighted sums too)."""
        ...
