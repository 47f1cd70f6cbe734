"""The entropy bonus (Williams and Peng 1991; PPO, arXiv 1707.06347, equation 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quartet.train.loss.base import LossInput, LossTerm, weighted_sum

if TYPE_CHECKING:  # the command line validates a recipe without loading torch
    import torch


class Entropy(LossTerm):
    """Minus the mean entropy of the tokens' distributions at temperature 1, in nats; a positive weight is a bonus."""

    needs = frozenset({"entropies"})
    source = "PPO, arXiv 1707.06347, equation 9"

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        return -weighted_sum(tokens, tokens.entropies_T), {}
