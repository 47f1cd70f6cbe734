"""KL-Cov: a KL penalty at the tokens whose log-prob and advantage have the highest covariance, to keep the entropy
up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quartet.config.section import Fraction, PositiveFloat
from quartet.train.covariances import covariances, largest
from quartet.train.importance import METRICS, ImportanceSettings, bounded_exp, importance_weights
from quartet.train.loss.base import LossInput, LossTerm, weighted_sum, weighted_sums

if TYPE_CHECKING:  # the command line validates a recipe without loading torch
    import torch


class KlCov(LossTerm):
    """Loss per token: w * (-r * A + coefficient * |log r|), the second summand at a small share of the tokens only.

    r = pi / pi_old is not clipped. The penalty is at the tokens with the largest covariance (log pi - mean) * (A -
    mean) of the minibatch. The penalty is 0 at the start of a train step, so it needs several optimizer steps per
    batch.
    """

    class Settings(ImportanceSettings):
        cov_share: Fraction = 2e-4
        """Share of the minibatch's tokens with the penalty, at least one token."""
        coefficient: PositiveFloat = 1.0
        """Factor of the penalty."""

    settings: Settings
    needs_minibatch = True
    metrics = METRICS | {
        "train/cov_penalised_fraction": "1: share of tokens with the penalty of the loss term `kl_cov`",
        "train/ratio_mean": "1: mean ratio of new to old probability",
    }
    source = "KL-Cov: The Entropy Mechanism, arXiv 2505.22617, and its released code"

    def over_minibatch(self, tokens: LossInput) -> torch.Tensor:
        """Return `[T]`: 1.0 at tokens with the penalty."""
        return largest(covariances(tokens), self.settings.cov_share, int((tokens.weights_T != 0).sum()))

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        assert tokens.minibatch_T is not None, "the term needs the whole minibatch"
        log_ratio_T = tokens.logprobs_T - tokens.old_logprobs_T
        penalty_T = self.settings.coefficient * tokens.minibatch_T * log_ratio_T.abs()
        ratio_T, log_rho_T = bounded_exp(log_ratio_T), tokens.old_logprobs_T - tokens.rollout_logprobs_T
        importance_T, metrics_T = importance_weights(log_rho_T, tokens.branches_T, self.settings)
        loss = weighted_sum(tokens, importance_T * (penalty_T - ratio_T * tokens.advantages_T))
        metrics_T |= {"cov_penalised_fraction": tokens.minibatch_T, "ratio_mean": ratio_T.detach()}
        return loss, weighted_sums(tokens, metrics_T)
