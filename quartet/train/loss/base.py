"""The interface of loss terms."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from quartet.errors import ConfigError
from quartet.part import Part
from quartet.registry import find
from quartet.train.passes import require_passes
from quartet.types import MemberUse

if TYPE_CHECKING:  # the command line validates a recipe without loading torch
    import torch

    from quartet.config import Recipe


class LossInput(NamedTuple):
    """Flat per-token tensors of one microbatch: T trained response tokens.

    The result of a forward pass is None if no term of the recipe needs the pass.
    """

    logprobs_T: torch.Tensor
    """Log-probs under the weights being trained; carries the gradient."""
    old_logprobs_T: torch.Tensor
    """Log-probs under the weights at the start of the train step, from the trainer's own pass."""
    rollout_logprobs_T: torch.Tensor
    """Log-probs recorded by the engine at sampling."""
    advantages_T: torch.Tensor
    weights_T: torch.Tensor
    """Weight of the token in a mean over the minibatch (`quartet.train.aggregation`); 0 if the term does not apply to
    the token's member."""
    branches_T: torch.Tensor
    """Index of the token's branch in the microbatch, from 0; a branch is never cut."""
    returns_T: torch.Tensor | None = None
    """Returns assigned by credit."""
    entropies_T: torch.Tensor | None = None
    """Entropy of the distribution at temperature 1, in nats; carries a gradient if a term needs `entropies`."""
    reference_logprobs_T: torch.Tensor | None = None
    """Result of the pass `reference`."""
    teacher_logprobs_T: torch.Tensor | None = None
    """Result of the pass `teacher`."""
    values_T: torch.Tensor | None = None
    """Result of the pass `values` under the weights being trained; carries a gradient."""
    old_values_T: torch.Tensor | None = None
    """Result of the pass `values` under the weights at the start of the train step."""


class LossTerm(Part):
    """One summand of the loss."""

    needs: ClassVar[frozenset[str]] = frozenset()
    """Forward passes that the term needs: names of `quartet.train.passes.PASSES`. Other passes are not run."""

    @property
    def uses(self) -> frozenset[MemberUse]:
        """Return the uses of members to whose tokens the term applies."""
        return frozenset({MemberUse.FRESH, MemberUse.REPLAY})

    @abstractmethod
    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        """Return the term and its metrics, both weighted sums over tokens, so that microbatches add up."""

    @classmethod
    def check(cls, settings: Any, recipe: Recipe) -> None:
        require_passes(f"the loss term {cls.__name__}", cls.needs)
        if "teacher" in cls.needs:
            what = f"the loss term {cls.__name__} needs the pass 'teacher', which is run for a credit alone"
            raise ConfigError(what, "use the credit 'distillation'")
        recorded = Counter(name for term in recipe.loss.terms for name in find("loss_term", term.name).metrics)
        if shared := sorted(name for name in cls.metrics if recorded[name] > 1):
            raise ConfigError(f"{cls.__name__} and another loss term record {shared[0]}", "choose one of them")


def weighted_sum(tokens: LossInput, values_T: torch.Tensor | None) -> torch.Tensor:
    """Return the weighted sum over tokens of a pass's or a term's values."""
    assert values_T is not None, "a term declares the passes that it needs"
    return (tokens.weights_T * values_T).sum()
