"""Loss of a run: the weighted sum of the recipe's loss terms. A term covers the tokens of the members to which it
applies."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from quartet.config import Loss
from quartet.config.training import LossTerm as ChosenTerm
from quartet.registry import build
from quartet.train.loss.base import LossInput, LossTerm
from quartet.train.metrics.own import own_metrics
from quartet.types import MemberUse

Facts = list[torch.Tensor | None]
"""For each term, its statistics of the whole minibatch (the result of its `over_minibatch`), or None if it needs
none."""
_WEIGHT_OF = "weight of "
"""Prefix of the entry that holds the summed weights of a metric's tokens."""


class Objective:
    """Loss that the optimizer minimises, for one section `loss` of a recipe."""

    def __init__(self, section: Loss) -> None:
        self._terms: list[tuple[ChosenTerm, LossTerm]] = [(choice, build(choice)) for choice in section.terms]
        self.needs = frozenset[str]().union(*(term.needs for _, term in self._terms))
        """Forward passes that the terms need."""
        self.needs_minibatch = any(term.needs_minibatch for _, term in self._terms)

    def loss(
        self, tokens: LossInput, uses_T: torch.Tensor, facts: Facts | None = None, train_step: int = 1
    ) -> tuple[torch.Tensor, dict[str, float]]:
        """Return the loss and the metrics of all terms for one microbatch, both sums over tokens (see `means`).

        The terms have their weights of `train_step`.

        `uses_T` comes from `Microbatch`. `facts` comes from `over_minibatch`; without it, the microbatch is treated as
        the whole minibatch.
        """
        total, metrics = tokens.weights_T.new_zeros(()), Counter[str]()
        facts = facts or self._facts(detached(tokens), uses_T)
        for (choice, term), minibatch_T in zip(self._terms, facts, strict=True):
            own = _own(term, tokens, uses_T)._replace(minibatch_T=minibatch_T)
            loss, found = term.loss(own)
            total = total + weight_at(choice, train_step) * loss
            metrics.update(with_weights(own_metrics(type(term).__name__, found), own.weights_T))
        return total, dict(metrics)

    def over_minibatch(self, parts: Sequence[LossInput], uses: Sequence[torch.Tensor]) -> list[Facts]:
        """Return, for each microbatch of a minibatch, the results of the terms' `over_minibatch` at its tokens."""
        sizes = [len(uses_T) for uses_T in uses]
        columns = [
            [None] * len(sizes) if whole_T is None else list(whole_T.split(sizes))
            for whole_T in self._facts(joined(parts), torch.cat(list(uses)))
        ]
        return [list(facts) for facts in zip(*columns, strict=True)]

    def _facts(self, tokens: LossInput, uses_T: torch.Tensor) -> Facts:
        return [
            term.over_minibatch(_own(term, tokens, uses_T)) if term.needs_minibatch else None for _, term in self._terms
        ]


def weight_at(choice: ChosenTerm, train_step: int) -> float:
    """Return the factor of a term in the loss of a train step."""
    if not choice.weight_points:
        return choice.weight
    train_steps, factors = zip(*choice.weight_points, strict=True)
    return choice.weight * float(np.interp(train_step, train_steps, factors))


def _own(term: LossTerm, tokens: LossInput, uses_T: torch.Tensor) -> LossInput:
    """Return the tokens with weight 0 where the term does not apply."""
    return tokens._replace(weights_T=tokens.weights_T * used(uses_T, term.uses) * term.applies(tokens))


def used(uses_T: torch.Tensor, uses: frozenset[MemberUse]) -> torch.Tensor:
    """Return 1.0 at tokens of members with one of the `uses`, and 0 elsewhere: `[T]`."""
    return torch.tensor([float(use in uses) for use in MemberUse], device=uses_T.device)[uses_T]


def detached(tokens: LossInput) -> LossInput:
    """Return the tokens without gradients."""
    columns = {name: column_T.detach() for name, column_T in tokens._asdict().items() if column_T is not None}
    return tokens._replace(**columns)


def joined(parts: Sequence[LossInput]) -> LossInput:
    """Return the tokens of several microbatches one after the other, without gradients; branches stay apart."""
    branches, count = list[torch.Tensor](), 0
    for part in parts:
        branches.append(part.branches_T + count)
        count += 1 + max(part.branches_T.tolist(), default=-1)
    present = [name for name, column_T in parts[0]._asdict().items() if column_T is not None]
    columns = {name: torch.cat([getattr(part, name) for part in parts]).detach() for name in present}
    return parts[0]._replace(**columns | {"branches_T": torch.cat(branches)})


def with_weights(sums: Mapping[str, float], weights_T: torch.Tensor) -> dict[str, float]:
    """Return a term's metrics, which are weighted sums over tokens, and beside each the sum of the weights."""
    weight = weights_T.sum().item()
    return {**sums, **{_WEIGHT_OF + name: weight for name in sums}}


def means(totals: Mapping[str, float]) -> dict[str, float]:
    """Return the totals of a minibatch, in which each metric of a term is divided by the summed weight of the term's
    tokens.

    A metric is thus a mean over tokens even if the weights of the loss do not sum to 1. Without tokens it is 0.
    """
    return {
        name: total / (totals.get(_WEIGHT_OF + name) or 1.0)
        for name, total in totals.items()
        if not name.startswith(_WEIGHT_OF)
    }
