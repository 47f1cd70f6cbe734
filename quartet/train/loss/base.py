"""The interface of policy losses."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from quartet.part import Part

if TYPE_CHECKING:  # the command line validates a recipe without loading torch
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


class PolicyLoss(Part):
    """What the optimizer minimises."""

    @abstractmethod
    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        """Return the loss to minimise and metrics: weighted sums over tokens, so that microbatches add up."""
