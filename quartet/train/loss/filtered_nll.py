"""Filtered behaviour cloning: maximum likelihood of the tokens whose advantage is above a threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quartet.config.section import Section
from quartet.train.loss.base import LossInput, LossTerm, weighted_sum, weighted_sums

if TYPE_CHECKING:  # the command line validates a recipe without loading torch
    import torch


class FilteredNll(LossTerm):
    """Loss per token: -log pi where A > threshold, else 0. All tokens count in the mean.

    With advantages of steps this is DigiRL's actor loss; with advantages of rollouts it is rejection sampling. The term
    raises the probability of sampled tokens and does not lower any, and it needs no log-prob of the policy that
    sampled.
    """

    class Settings(Section):
        threshold: float = 0.0
        """Advantage above which a token is imitated; 1 / (turns of a task) in DigiRL's paper."""

    settings: Settings
    metrics = {"train/imitated_fraction": "1: share of tokens that the loss term `filtered_nll` imitates"}
    source = "DigiRL, arXiv 2406.11896, section 4"

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        kept_T = (tokens.advantages_T > self.settings.threshold).to(tokens.logprobs_T.dtype)
        return -weighted_sum(tokens, kept_T * tokens.logprobs_T), weighted_sums(tokens, {"imitated_fraction": kept_T})
