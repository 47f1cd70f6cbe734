"""Loss of a run: the weighted sum of the recipe's loss terms, each over the members to which it applies."""

from collections import Counter

import torch

from quartet.config import Loss
from quartet.registry import build
from quartet.train.loss.base import LossInput, LossTerm
from quartet.types import MemberUse


class Objective:
    """Loss that the optimizer minimises, for one section `loss` of a recipe."""

    def __init__(self, section: Loss) -> None:
        self._terms: list[tuple[float, LossTerm]] = [(choice.weight, build(choice)) for choice in section.terms]
        self.needs = frozenset[str]().union(*(term.needs for _, term in self._terms))
        """Forward passes that the terms need."""

    def loss(self, tokens: LossInput, uses_T: torch.Tensor) -> tuple[torch.Tensor, dict[str, float]]:
        """Return the loss and the metrics of all terms. `uses_T` is the field of `Microbatch`."""
        total, metrics = tokens.weights_T.new_zeros(()), Counter[str]()
        for weight, term in self._terms:
            loss, found = term.loss(tokens._replace(weights_T=tokens.weights_T * used(uses_T, term.uses)))
            total = total + weight * loss
            metrics.update(found)
        return total, dict(metrics)


def used(uses_T: torch.Tensor, uses: frozenset[MemberUse]) -> torch.Tensor:
    """Return 1.0 at tokens of members with one of the `uses`, and 0 elsewhere: `[T]`."""
    return torch.tensor([float(use in uses) for use in MemberUse], device=uses_T.device)[uses_T]
