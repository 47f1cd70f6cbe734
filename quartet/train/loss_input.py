"""Input of the loss terms, from a microbatch and its scores."""

import torch

from quartet.train.forward import Scores
from quartet.train.loss.base import LossInput
from quartet.train.microbatch import Microbatch
from quartet.train.packing import RECOMPUTED


def loss_input(microbatch: Microbatch, scores: Scores) -> LossInput:
    """Return the tokens of a microbatch, scored under the weights being trained."""
    old_logprobs_T = microbatch.old_logprobs_T
    if old_logprobs_T is None:
        old_logprobs_T = scores.logprobs_T.detach()
    recorded_T = microbatch.rollout_logprobs_T
    return LossInput(
        logprobs_T=scores.logprobs_T,
        old_logprobs_T=old_logprobs_T,
        rollout_logprobs_T=torch.where(recorded_T == RECOMPUTED, old_logprobs_T, recorded_T),
        advantages_T=microbatch.advantages_T,
        weights_T=microbatch.weights_T,
        branches_T=microbatch.branches_T,
        returns_T=microbatch.returns_T,
        entropies_T=scores.entropies_T,
        reference_logprobs_T=microbatch.reference_logprobs_T,
        values_T=scores.values_T,
        old_values_T=_old_values(microbatch, scores.values_T),
        lags_T=microbatch.lags_T,
        trajectories_T=microbatch.trajectories_T,
        groups_T=microbatch.groups_T,
        roles_T=microbatch.roles_T,
    )


def _old_values(microbatch: Microbatch, values_T: torch.Tensor | None) -> torch.Tensor | None:
    """Return the values at the start of the train step; if none were stored, the present ones, which are equal then."""
    return microbatch.old_values_T if microbatch.old_values_T is not None or values_T is None else values_T.detach()
