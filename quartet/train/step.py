"""Optimizer steps of a train step: loss, gradient, optimizer. The passes before them are in `quartet.train.scoring`.

`Learner` holds the weights being trained and the optimizer. It uses no ledger, no files and no policy versions.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType

import torch
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from quartet.config import Recipe
from quartet.errors import QuartetError
from quartet.native.memory_allocator import keep_freed_memory
from quartet.on_progress import no_progress
from quartet.policy.device import usable_device
from quartet.registry import build
from quartet.train.activation_checkpointing import checkpoint_layers
from quartet.train.aggregation import COMPARED
from quartet.train.assign import Passes
from quartet.train.critic.base import Critic
from quartet.train.gpu.compiled_layers import compile_layers
from quartet.train.gpu.support import require_kernels
from quartet.train.loss.base import LossInput
from quartet.train.loss_input import loss_input, of_all_ranks
from quartet.train.metrics.gap import add_up, gap_means, gap_sums
from quartet.train.metrics.gradient_norms import gradient_norms
from quartet.train.moving_reference import MovingReference
from quartet.train.objective import Facts, Objective, means, used, with_weights
from quartet.train.optimizer import (
    clip_gradients,
    learning_parameters,
    make_optimizer,
    on_device_for_step,
    set_learning_rates,
    trained_parameters,
    without_early_gradients,
)
from quartet.train.packing.attention import uses_flash
from quartet.train.packing.branches import Branch
from quartet.train.packing.microbatch import Microbatch
from quartet.train.packing.sight import Sight
from quartet.train.ranks.base import Ranks, shard_like, whole
from quartet.train.ranks.orders import GatherWeights
from quartet.train.scoring import Plan, Scorer

Witness = Callable[[Microbatch, torch.Tensor, torch.Tensor], None]
"""Callback that receives each microbatch of the first epoch, with the old log-probs `[T]` and entropies `[T]` of its
tokens, in nats."""

NORMS = ("gradient_norm", "critic_gradient_norm")
"""Metrics of the norms of the optimizer's groups; a policy without a critic has one group."""


class NonFiniteError(QuartetError):
    """Raised if a loss or gradient is infinite or NaN, before it has changed the weights."""


class Learner:
    """Trains one model.

    `frozen` holds the policies for the passes `reference` and `teacher`, if a credit or the loss needs them. `sight`
    supplies the pictures for a model that reads pictures. With several `ranks`, each rank holds a shard of a copy of
    every policy; the given models stay whole and are not trained.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        recipe: Recipe,
        frozen: Mapping[str, PreTrainedModel] = MappingProxyType({}),
        sight: Sight | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self._objective = Objective(recipe.loss)
        self.ranks = ranks or Ranks()
        device = usable_device(recipe.train.device, "train.device")
        require_kernels(device)
        if device.type == "cpu":
            keep_freed_memory()
        for policy in (model, *frozen.values()):
            torch.nn.Module.to(policy, device)
        model.eval()  # dropout would add noise to the ratio of new to old probability
        for policy in (model, *frozen.values()):
            if uses_flash(policy, getattr(torch, recipe.train.compute_dtype)):
                compile_layers(policy)
        if recipe.train.activation_checkpointing:
            checkpoint_layers(model)
        self.critic: Critic | None = None
        if "values" in self._objective.needs:
            self.critic = critic = build(recipe.critic, model, sight)
            critic.shard(self.ranks)
        self.model = model = self.ranks.sharded(model)
        self.recipe = recipe
        self.frozen = frozen = {name: self.ranks.sharded(policy) for name, policy in frozen.items()}
        self.scorer = Scorer(model, self.critic, recipe, frozen, sight, self.ranks)
        self.moving_reference: MovingReference | None = None
        if "reference" in self._objective.needs:
            self.scorer.require("reference")
        if "reference" in frozen and recipe.reference.train_steps_per_move:
            self.moving_reference = MovingReference(frozen["reference"], model, recipe.reference)
        self.optimizer_step = 0
        self.optimizer = make_optimizer(model, self.critic, recipe.train)

    @property
    def unpublished(self) -> dict[str, torch.nn.Parameter]:
        """Parameters that the policy's folder does not hold, by name: those of the critic and of a moving reference."""
        found: dict[str, torch.nn.Parameter] = {}
        if self.critic is not None:
            found |= trained_parameters(self.critic.module, "critic")
        if self.moving_reference is not None:
            found |= self.moving_reference.model.named_parameters(prefix="reference")
        return found

    @property
    def parameters(self) -> dict[str, torch.nn.Parameter]:
        """All parameters that a train step changes, by name."""
        return trained_parameters(self.model) | self.unpublished

    def reset(self) -> None:
        """Return to the state before the first step, for a model at its initial weights.

        The optimizer has no moments then, the critic is new, and the reference equals the model.
        """
        self.optimizer_step = 0
        self.optimizer.state.clear()
        if self.critic is not None:
            self.critic.reset(self.model)
        if self.moving_reference is not None:
            self.moving_reference.reset()

    def whole_weights(self) -> Iterator[torch.Tensor]:
        """Yield the policy's trained weights, whole, in their order. All ranks must iterate together."""
        return (whole(parameter.detach()) for parameter in trained_parameters(self.model).values())

    @torch.no_grad()
    def give_weights(self, model: PreTrainedModel, progress: Callable[[], None] = no_progress) -> None:
        """Copy the trained weights into a whole model. `progress` is called after each tensor."""
        with self.ranks.together(GatherWeights()):
            for parameter, weights in zip(trained_parameters(model).values(), self.whole_weights(), strict=True):
                parameter.copy_(weights)
                progress()

    @torch.no_grad()
    def take_weights(self, model: PreTrainedModel, progress: Callable[[], None] = no_progress) -> None:
        """Copy the weights of a whole model into the trained one. `progress` is called after each tensor."""
        trained, other = trained_parameters(self.model), trained_parameters(model)
        for parameter, weights in zip(trained.values(), other.values(), strict=True):
            parameter.copy_(shard_like(weights, parameter))
            progress()

    def plan(self, branches: Sequence[Branch], train_step: int, progress: Callable[[], None]) -> Plan:
        """Return the minibatches of a train step, with the passes that the loss needs; see `Scorer.plan`."""
        return self.scorer.plan(branches, train_step, self._objective.needs, progress)

    def update(self, plan: Plan, progress: Callable[[], None], witness: Witness | None = None) -> dict[str, float]:
        """Take all optimizer steps of one train step. Return metrics, weighted like the loss.

        A metric is averaged over the optimizer steps that have it.

        `gap_k1_nats` and `gap_k3_nats`, between engine and trainer, are over fresh tokens only. `computed_tokens`
        counts the positions of one epoch, with padding, and shared prefixes once. An empty plan, as for a batch of
        tokens that are all too old, leaves the weights unchanged.

        Raises `NonFiniteError` before the optimizer step that would have used the bad gradient.
        """
        totals, steps = Counter[str](), Counter[str]()
        for epoch in range(self.recipe.train.epochs):
            for minibatch in plan:
                found = self._optimizer_step(minibatch, progress, witness if epoch == 0 else None)
                add_up(totals, found)
                steps.update(found.keys())
        gap = gap_means(totals)
        metrics = {name: float(total) / steps[name] for name, total in totals.items()} | gap
        computed = sum(microbatch.ids_BL.numel() for minibatch in plan for microbatch in minibatch)
        if steps:
            metrics["learning_rate"] = self.optimizer.param_groups[0]["lr"]
        metrics["computed_tokens"] = sum(int(each[""]) for each in self.ranks.numbers({"": computed}))
        mean, square_mean = metrics.get("importance_mean", 0.0), metrics.pop("importance_square_mean", 0.0)
        if square_mean:
            metrics["effective_sample_fraction"] = mean * mean / square_mean
        return metrics

    def rehearse(self, plan: Plan, progress: Callable[[], None]) -> None:
        """Compute all losses and gradients of a plan without an optimizer step. Raises like `update`."""
        for minibatch in plan:
            self.gradient(minibatch, progress)

    def passes(self, needs: Set[str], branches: Sequence[Branch], progress: Callable[[], None]) -> Passes:
        """Return the results of the forward passes `needs`, in nats, under the weights before the train step."""
        return self.scorer.passes(needs, branches, progress)

    def _optimizer_step(
        self, minibatch: Sequence[Microbatch], progress: Callable[[], None], witness: Witness | None
    ) -> dict[str, float]:
        metrics = self.gradient(minibatch, progress, witness)
        self.optimizer_step += 1
        set_learning_rates(self.optimizer, self.recipe.train, self.optimizer_step)
        with on_device_for_step(self.optimizer, self.model.device, self.recipe.train):
            self.optimizer.step()
        return metrics

    def gradient(
        self, minibatch: Sequence[Microbatch], progress: Callable[[], None], witness: Witness | None = None
    ) -> dict[str, float]:
        """Compute the clipped gradient of a minibatch into the parameters, and return metrics.

        Raises `NonFiniteError`.
        """
        self.optimizer.zero_grad(set_to_none=True)
        own: Counter[str] = Counter()
        with without_early_gradients(self.optimizer, self.optimizer_step + 1, sharded=self.ranks.size > 1):
            for microbatch, facts in zip(minibatch, self._facts(minibatch, progress), strict=True):
                self.ranks.before_backward(last=microbatch is minibatch[-1])
                add_up(own, self._backward(microbatch, witness, facts))
                progress()
        totals: Counter[str] = Counter()
        for of_rank in self.ranks.numbers(own):
            add_up(totals, of_rank)
        learning = learning_parameters(self.optimizer, self.optimizer_step + 1)
        self.ranks.sum_gradients(one for one in learning if not isinstance(one, DTensor))  # FSDP sums the others
        of_layers = gradient_norms(self.model)
        norms = clip_gradients(self.optimizer, self.recipe.train.max_grad_norm)
        numbers = {"loss": totals["loss"], **dict(zip(NORMS, norms, strict=False))}
        if not all(map(math.isfinite, numbers.values())):
            raise NonFiniteError(
                f"optimizer step {self.optimizer_step + 1} has a loss or gradient that is not finite: "
                + ", ".join(f"{name} {number}" for name, number in numbers.items()),
                "lower train.learning_rate or a term's importance_cap, or look at the batch's rewards and log-probs",
            )
        return {**means(totals), **of_layers, **numbers}

    @torch.no_grad()
    def _facts(self, minibatch: Sequence[Microbatch], progress: Callable[[], None]) -> Sequence[Facts | None]:
        """Return for each microbatch the results of the terms' `over_minibatch`; None if no term needs them, or if the
        minibatch is one microbatch of one rank."""
        if not self._objective.needs_minibatch or len(minibatch) == self.ranks.size == 1:
            return [None] * len(minibatch)
        parts: list[LossInput] = []
        for microbatch in minibatch:
            parts.append(loss_input(microbatch, self.scorer.score(microbatch)))
            progress()
        parts, uses, own = of_all_ranks(parts, [microbatch.uses_T for microbatch in minibatch], self.ranks)
        return self._objective.over_minibatch(parts, uses)[own]

    def _backward(
        self, microbatch: Microbatch, witness: Witness | None = None, facts: Facts | None = None
    ) -> dict[str, float]:
        """Add the gradient of one microbatch. Return its loss and metrics, which are summed over the minibatch."""
        entropy_gradient = "entropies" in self._objective.needs
        scores = self.scorer.score(microbatch, entropy_gradient=entropy_gradient)
        if microbatch.is_empty:  # its passes let the other ranks gather and sum their shards
            passes = [scores.logprobs_T.sum(), *([] if scores.values_T is None else [scores.values_T.sum()])]
            torch.autograd.backward(passes)
            return {"loss": 0.0}
        tokens = loss_input(microbatch, scores)
        if witness is not None:
            witness(microbatch, tokens.old_logprobs_T, scores.entropies_T)
        loss, metrics = self._objective.loss(tokens, microbatch.uses_T, facts, microbatch.train_step)
        metrics |= gap_sums(microbatch, tokens.old_logprobs_T)
        compared_T = microbatch.weights_T * used(microbatch.uses_T, COMPARED)
        metrics |= with_weights({"entropy_nats": (compared_T * scores.entropies_T).sum().item()}, compared_T)
        metrics["loss"] = loss.item()  # waits for the forward pass of a GPU, and not for its backward pass
        torch.autograd.backward(loss)
        return metrics
