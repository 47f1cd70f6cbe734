"""Arithmetic of a train step: minibatches, log-probs under fixed weights, loss, gradient, optimizer.

`Learner` holds the weights being trained and the optimizer. It uses no ledger, no files and no policy versions.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import torch
from transformers import PreTrainedModel

from quartet.config import Recipe
from quartet.errors import ConfigError, QuartetError
from quartet.policy.rope import refuse_length_dependent_rope
from quartet.train.aggregation import COMPARED, token_weights
from quartet.train.assign import Passes
from quartet.train.branch_attention import attends_everywhere
from quartet.train.forward import Scores, require_plain_head, score
from quartet.train.gap import gap_means, gap_sums
from quartet.train.linear import train_by_the_faster_library
from quartet.train.loss.base import LossInput
from quartet.train.microbatch import Microbatch, collate
from quartet.train.objective import Facts, Objective, means, used, with_weights
from quartet.train.optimizer import clip_gradients, make_optimizer, scheduled
from quartet.train.packing import RECOMPUTED, Branch
from quartet.train.rows import Row, in_chunks, share_prompts
from quartet.train.sight import Sight
from quartet.train.value_head import ValueHead

Plan = list[list[Microbatch]]
"""One list of microbatches for each minibatch, in the order of training."""
Witness = Callable[[Microbatch, torch.Tensor, torch.Tensor], None]
"""Callback that receives each microbatch of the first epoch, with the old log-probs `[T]` and entropies `[T]` of its
tokens, in nats."""


class NonFiniteError(QuartetError):
    """Raised if a loss or gradient is infinite or NaN, before it has changed the weights."""


class Learner:
    """Trains one model.

    `frozen` holds the policies for the passes `reference` and `teacher`, if a credit or the loss needs them. `sight`
    supplies the pictures for a model that reads pictures.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        recipe: Recipe,
        frozen: Mapping[str, PreTrainedModel] = MappingProxyType({}),
        sight: Sight | None = None,
    ) -> None:
        self._objective = Objective(recipe.loss)
        self.frozen = frozen
        if "reference" in self._objective.needs:
            self._frozen("reference")
        for scored in (model, *frozen.values()):
            require_plain_head(scored)
            refuse_length_dependent_rope(scored.config.get_text_config(), recipe.engine.max_context_tokens)
            train_by_the_faster_library(scored)
        # In eval mode, since dropout would add noise to the ratio of new to old probability.
        self.model, self.recipe = model.eval(), recipe
        self.value_head = _value_head_of(model) if "values" in self._objective.needs else None
        self.optimizer_step = 0
        self.optimizer = make_optimizer(model, self.value_head, recipe.train)
        self._packed, self._sight = all(map(attends_everywhere, (model, *frozen.values()))), sight

    @property
    def head_parameters(self) -> dict[str, torch.nn.Parameter]:
        """Parameters of the value head by name; the policy's folder does not hold them."""
        return {} if self.value_head is None else dict(self.value_head.named_parameters(prefix="value_head"))

    @property
    def parameters(self) -> dict[str, torch.nn.Parameter]:
        """All trained parameters by name."""
        return dict(self.model.named_parameters()) | self.head_parameters

    def reset(self) -> None:
        """Delete the optimizer's moments and set the value head to 0, as before the first step."""
        self.optimizer_step = 0
        self.optimizer.state.clear()
        if self.value_head is not None:
            self.value_head.reset()

    def plan(self, branches: Sequence[Branch], train_step: int, progress: Callable[[], None]) -> Plan:
        """Divide branches into minibatches of microbatches, with old and reference log-probs where they are needed.

        Whole groups are assigned to minibatches at random, seeded by the run's seed and the train step, since rewards
        are compared and prompts are shared within a group. The old log-probs are those under the weights before the
        train step. The first optimizer step starts from these weights, so with one epoch the first minibatch needs no
        extra pass for them. `progress` is called after each microbatch.
        """
        minibatches = self.recipe.train.minibatches
        order = np.random.default_rng([self.recipe.seed, train_step]).permutation(_num_groups(branches))
        dealt: list[list[Branch]] = [[] for _ in range(minibatches)]
        for branch in branches:
            dealt[order[branch.group_index] % minibatches].append(branch)
        plan = [list(self._microbatches(minibatch)) for minibatch in dealt if minibatch]
        unscored = 1 if self.recipe.train.epochs == 1 else 0
        plan = plan[:unscored] + self._scored(plan[unscored:], self.model, "old_logprobs_T", progress)
        if "reference" in self._objective.needs:
            plan = self._scored(plan, self._frozen("reference"), "reference_logprobs_T", progress)
        return plan

    def update(self, plan: Plan, progress: Callable[[], None], witness: Witness | None = None) -> dict[str, float]:
        """Take all optimizer steps of one train step. Return metrics, averaged over them and weighted like the loss.

        `gap_k1_nats` and `gap_k3_nats`, between engine and trainer, are over fresh tokens only. `computed_tokens`
        counts the positions of one epoch, with padding, and shared prefixes once. An empty plan, as for a batch of
        tokens that are all too old, leaves the weights unchanged.

        Raises `NonFiniteError` before the optimizer step that would have used the bad gradient.
        """
        totals: Counter[str] = Counter()
        steps = 0
        for epoch in range(self.recipe.train.epochs):
            for minibatch in plan:
                totals.update(self._optimizer_step(minibatch, progress, witness if epoch == 0 else None))
                steps += 1
        gap = gap_means(totals)
        metrics = {name: float(total) / steps for name, total in totals.items()} | gap
        metrics["computed_tokens"] = sum(microbatch.ids_BL.numel() for minibatch in plan for microbatch in minibatch)
        if second_moment := metrics.pop("importance_square_mean", 0.0):
            metrics["effective_sample_fraction"] = metrics["importance_mean"] ** 2 / second_moment
        return metrics

    def rehearse(self, plan: Plan, progress: Callable[[], None]) -> None:
        """Compute all losses and gradients of a plan without an optimizer step. Raises like `update`."""
        for minibatch in plan:
            self._gradient(minibatch, progress, None)

    def passes(self, needs: Set[str], branches: Sequence[Branch], progress: Callable[[], None]) -> Passes:
        """Return the results of the forward passes `needs`, in nats, under the weights before the train step."""
        found: dict[str, list[np.ndarray]] = {}
        if "entropies" in needs:
            found["entropies"] = self._each_token(self.model, branches, lambda scores: scores.entropies_T, progress)
        if "values" in needs:
            found["values"] = self._each_token(self.model, branches, _values, progress)
        for name in sorted(needs & {"reference", "teacher"}):
            found[name] = self._each_token(self._frozen(name), branches, lambda scores: scores.logprobs_T, progress)
        return found

    def _frozen(self, name: str) -> PreTrainedModel:
        if name not in self.frozen:
            raise ConfigError(f"the loss or the credit needs the pass {name!r}", "pass its policy in `frozen`")
        return self.frozen[name]

    @torch.no_grad()
    def _each_token(
        self,
        model: PreTrainedModel,
        branches: Sequence[Branch],
        column: Callable[[Scores], torch.Tensor],
        progress: Callable[[], None],
    ) -> list[np.ndarray]:
        """Return for each branch the values of its trained tokens in one column of the scores."""
        found: dict[int, np.ndarray] = {}
        for rows in self._chunks(branches):
            values_T = column(self._score(model, self._collated(rows))).cpu().numpy()
            in_order = [branch for row in rows for branch in row.branches]
            ends = np.cumsum([branch.num_trained_tokens for branch in in_order])
            found |= dict(zip(map(id, in_order), np.split(values_T, ends[:-1]), strict=True))
            progress()
        return [found[id(branch)] for branch in branches]

    def _chunks(self, branches: Sequence[Branch]) -> Iterator[list[Row]]:
        weights = token_weights(branches, self.recipe.loss)
        most = self.recipe.train.max_tokens_per_microbatch
        rows = share_prompts(branches, weights, share=self._packed, max_tokens_per_microbatch=most)
        return in_chunks(rows, most, packed=self._packed)

    def _microbatches(self, branches: Sequence[Branch]) -> Iterator[Microbatch]:
        for rows in self._chunks(branches):
            yield self._collated(rows)

    def _collated(self, rows: Sequence[Row]) -> Microbatch:
        positions = self._sight.positions if self._sight else None
        return collate(rows, packed=self._packed, positions=positions).to(self.model.device)

    @torch.no_grad()
    def _scored(self, plan: Plan, model: PreTrainedModel, name: str, progress: Callable[[], None]) -> Plan:
        """Return the plan with the log-probs under `model` in the microbatches' field `name`.

        If `model` is the trained one, the values of its value head become the old values.
        """
        scored: Plan = []
        for minibatch in plan:
            scored.append([])
            for microbatch in minibatch:
                scores = self._score(model, microbatch)
                old_values = {"old_values_T": scores.values_T} if model is self.model else {}
                scored[-1].append(replace(microbatch, **{name: scores.logprobs_T}, **old_values))
                progress()
        return scored

    def _optimizer_step(
        self, minibatch: Sequence[Microbatch], progress: Callable[[], None], witness: Witness | None
    ) -> dict[str, float]:
        metrics = self._gradient(minibatch, progress, witness)
        self.optimizer_step += 1
        for group in self.optimizer.param_groups:
            group["lr"] = scheduled(group["peak"], self.recipe.train, self.optimizer_step)
        self.optimizer.step()
        return {**metrics, "learning_rate": self.optimizer.param_groups[0]["lr"]}

    def _gradient(
        self, minibatch: Sequence[Microbatch], progress: Callable[[], None], witness: Witness | None
    ) -> dict[str, float]:
        """Compute the clipped gradient of a minibatch into the parameters, and return metrics.

        Raises `NonFiniteError`.
        """
        self.optimizer.zero_grad(set_to_none=True)
        totals: Counter[str] = Counter()
        for microbatch, facts in zip(minibatch, self._facts(minibatch, progress), strict=True):
            totals.update(self._backward(microbatch, witness, facts))
            progress()
        grad_norm, *of_head = clip_gradients(self.optimizer, self.recipe.train.max_grad_norm)
        if not all(map(math.isfinite, (totals["loss"], grad_norm, *of_head))):
            raise NonFiniteError(
                f"optimizer step {self.optimizer_step + 1}: loss {totals['loss']}, gradient norm {grad_norm}"
                + "".join(f", of the value head {norm}" for norm in of_head),
                "lower train.learning_rate or a term's importance_cap, or look at the batch's rewards and log-probs",
            )
        return {**means(totals), "gradient_norm": grad_norm}

    @torch.no_grad()
    def _facts(self, minibatch: Sequence[Microbatch], progress: Callable[[], None]) -> Sequence[Facts | None]:
        """Score the whole minibatch first if a term needs it and there is a cut; return the facts per microbatch."""
        if not self._objective.needs_minibatch or len(minibatch) == 1:
            return [None] * len(minibatch)
        parts: list[LossInput] = []
        for microbatch in minibatch:
            parts.append(_loss_input(microbatch, self._score(self.model, microbatch)))
            progress()
        return self._objective.over_minibatch(parts, [microbatch.uses_T for microbatch in minibatch])

    def _backward(
        self, microbatch: Microbatch, witness: Witness | None = None, facts: Facts | None = None
    ) -> dict[str, float]:
        """Add the gradient of one microbatch. Return its loss and metrics, which are summed over the minibatch."""
        entropy_gradient = "entropies" in self._objective.needs
        scores = self._score(self.model, microbatch, entropy_gradient=entropy_gradient)
        tokens = _loss_input(microbatch, scores)
        if witness is not None:
            witness(microbatch, tokens.old_logprobs_T, scores.entropies_T)
        loss, metrics = self._objective.loss(tokens, microbatch.uses_T, facts)
        metrics |= gap_sums(microbatch, tokens.old_logprobs_T)
        compared_T = microbatch.weights_T * used(microbatch.uses_T, COMPARED)
        metrics |= with_weights({"entropy_nats": (compared_T * scores.entropies_T).sum().item()}, compared_T)
        torch.autograd.backward(loss)
        return {"loss": loss.item(), **metrics}

    def _score(self, model: PreTrainedModel, microbatch: Microbatch, *, entropy_gradient: bool = False) -> Scores:
        """Score a microbatch; with values if it is under the trained policy and there is a value head."""
        head = self.value_head if model is self.model else None
        return score(model, microbatch, self._sight, value_head=head, entropy_gradient=entropy_gradient)


def _values(scores: Scores) -> torch.Tensor:
    assert scores.values_T is not None, "a credit that needs values comes with a loss term that trains them"
    return scores.values_T


def _old_values(microbatch: Microbatch, values_T: torch.Tensor | None) -> torch.Tensor | None:
    """Return the values at the start of the train step; if none were stored, the present ones, which are equal then."""
    return microbatch.old_values_T if microbatch.old_values_T is not None or values_T is None else values_T.detach()


def _value_head_of(model: PreTrainedModel) -> ValueHead:
    return ValueHead(model.config.get_text_config().hidden_size).to(model.device)


def _loss_input(microbatch: Microbatch, scores: Scores) -> LossInput:
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


def _num_groups(branches: Sequence[Branch]) -> int:
    return 1 + max((branch.group_index for branch in branches), default=-1)
