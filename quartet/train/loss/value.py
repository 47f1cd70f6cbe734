"""The loss of a value function, clipped as in PPO's released code and in verl's `core_algos.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quartet.config.section import PositiveFloat, Section
from quartet.train.loss.base import LossInput, LossTerm, weighted_sum

if TYPE_CHECKING:  # the command line validates a recipe without loading torch
    import torch


class Value(LossTerm):
    """Half the mean of max((v - return)^2, (clip(v, v_old - clip, v_old + clip) - return)^2).

    A token without a return (NaN, see `vl_dac`) does not count, and the others keep their weights. The gradient is
    therefore that of the mean over tokens with a return, times the sum of their weights. AdamW cancels this factor in
    the critic's own parameters if it is constant. It stays in the gradient that `head_with_gradient` adds to the
    policy's.
    """

    class Settings(Section):
        clip: PositiveFloat = 0.2
        """Maximum change of a value within a train step; a move further towards the return gets no gradient."""

    settings: Settings
    needs = frozenset({"values"})
    source = "PPO, arXiv 1707.06347, equation 9, with the clip of its released code"
    metrics = {"train/value_loss": "1: the loss of the value function"}

    def applies(self, tokens: LossInput) -> torch.Tensor:
        assert tokens.returns_T is not None, "the trainer gives every token its return"
        return (~tokens.returns_T.isnan()).to(tokens.weights_T.dtype)

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        values_T, old_T, returns_T = tokens.values_T, tokens.old_values_T, tokens.returns_T
        assert values_T is not None and old_T is not None and returns_T is not None, "the term needs the pass `values`"
        returns_T = returns_T.where(~returns_T.isnan(), values_T.detach())  # NaN times a weight of 0 is NaN
        clipped_T = old_T + (values_T - old_T).clamp(-self.settings.clip, self.settings.clip)
        worse_T = (values_T - returns_T).square().maximum((clipped_T - returns_T).square())
        loss = 0.5 * weighted_sum(tokens, worse_T)
        return loss, {"value_loss": loss.item()}
