"""Division of branches into minibatches and microbatches, and their forward passes. `quartet.train.step` takes the
optimizer steps."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from transformers import PreTrainedModel

from quartet.config import Recipe
from quartet.errors import ConfigError
from quartet.policy.lora import has_adapter, without_adapter
from quartet.policy.rope import refuse_length_dependent_rope
from quartet.train.aggregation import token_weights
from quartet.train.assign import Passes
from quartet.train.critic.base import Critic
from quartet.train.end_values import END_VALUES, one_token_later
from quartet.train.forward import Scores, forward, score
from quartet.train.kernel.layers import train_by_kernels
from quartet.train.linear import train_by_the_faster_library
from quartet.train.packing.attention import attends_everywhere, gathers_branches
from quartet.train.packing.branches import Branch
from quartet.train.packing.microbatch import Microbatch, collate
from quartet.train.packing.rows import Row, own_chunks, share_prompts
from quartet.train.packing.sight import Sight
from quartet.train.ranks.base import Ranks

Plan = list[list[Microbatch]]
"""One list of microbatches for each minibatch, in the order of training."""


class Scorer:
    """Scores branches under the trained policy and under the policies of `frozen`."""

    def __init__(
        self,
        model: PreTrainedModel,
        critic: Critic | None,
        recipe: Recipe,
        frozen: Mapping[str, PreTrainedModel],
        sight: Sight | None,
        ranks: Ranks,
    ) -> None:
        for scored in (model, *frozen.values()):
            refuse_length_dependent_rope(scored.config.get_text_config(), recipe.engine.max_context_tokens)
            train_by_the_faster_library(scored)
            train_by_kernels(scored)
        if critic is not None:
            train_by_the_faster_library(critic.module)
            train_by_kernels(critic.module)
        self.packed = all(map(attends_everywhere, (model, *frozen.values())))
        """True if the branches of a microbatch are packed into one row."""
        self._gathers = any(map(gathers_branches, (model, *frozen.values())))
        self._compute_dtype: torch.dtype = getattr(torch, recipe.train.compute_dtype)
        self._model, self._critic, self._recipe = model, critic, recipe
        self._frozen, self._sight, self._ranks = frozen, sight, ranks

    def plan(self, branches: Sequence[Branch], train_step: int, needs: Set[str], progress: Callable[[], None]) -> Plan:
        """Divide branches into minibatches of microbatches, with old and reference log-probs where they are needed.

        Whole groups are assigned to minibatches at random, seeded by the run's seed and the train step, since rewards
        are compared and prompts are shared within a group. The old log-probs are those under the weights before the
        train step. The first optimizer step starts from these weights, so with one epoch the first minibatch needs no
        extra pass for them. `needs` are the passes of the loss; `progress` is called after each microbatch.
        """
        minibatches = self._recipe.train.minibatches
        order = np.random.default_rng([self._recipe.seed, train_step]).permutation(_num_groups(branches))
        dealt: list[list[Branch]] = [[] for _ in range(minibatches)]
        for branch in branches:
            dealt[order[branch.group_index] % minibatches].append(branch)
        plan = [
            [replace(self._collated(rows), train_step=train_step) for rows in self._chunks(minibatch)]
            for minibatch in dealt
            if minibatch
        ]
        unscored = 1 if self._recipe.train.epochs == 1 else 0
        plan = plan[:unscored] + self._scored(plan[unscored:], self.score, "old_logprobs_T", progress)
        if "reference" in needs:
            plan = self._scored(plan, partial(self._under, "reference"), "reference_logprobs_T", progress)
        return plan

    def passes(self, needs: Set[str], branches: Sequence[Branch], progress: Callable[[], None]) -> Passes:
        """Return the results of the forward passes `needs`, in nats, under the present weights."""
        columns = {"entropies": lambda one: score(self._model, one, self._sight).entropies_T, "values": self._values}
        found = {
            name: self._each_token(columns.get(name) or partial(self._logprobs_under, name), branches, progress)
            for name in sorted(needs - {END_VALUES})
        }
        if END_VALUES in needs:
            found[END_VALUES] = self._each_token(self._values, one_token_later(branches), progress)
        return found

    def score(self, microbatch: Microbatch, *, entropy_gradient: bool = False) -> Scores:
        """Score a microbatch under the trained policy; with values if there is a critic."""
        return score(self._model, microbatch, self._sight, critic=self._critic, entropy_gradient=entropy_gradient)

    def require(self, name: str) -> None:
        """Raise `ConfigError` if there is no policy for the pass `name`."""
        if name not in self._frozen and not self._is_base(name):
            raise ConfigError(f"the loss or the credit needs the pass {name!r}", "pass the policy for it in `frozen`")

    @torch.no_grad()
    def _each_token(
        self, column: Callable[[Microbatch], torch.Tensor], branches: Sequence[Branch], progress: Callable[[], None]
    ) -> list[np.ndarray]:
        """Return for each branch the values of its trained tokens that `column` computes for a microbatch."""
        found: dict[int, np.ndarray] = {}
        for rows in self._chunks(branches):
            values_T = column(self._collated(rows)).cpu().numpy()
            in_order = [branch for row in rows for branch in row.branches]
            ends = np.cumsum([branch.num_trained_tokens for branch in in_order])
            found |= dict(zip(map(id, in_order), np.split(values_T, ends[:-1]), strict=True))
            progress()
        own = {place: found[id(branch)] for place, branch in enumerate(branches) if id(branch) in found}
        everywhere = self._ranks.merged(own)
        return [everywhere[place] for place in range(len(branches))]

    @torch.no_grad()
    def _scored(
        self, plan: Plan, scores_of: Callable[[Microbatch], Scores], name: str, progress: Callable[[], None]
    ) -> Plan:
        """Return the plan with the log-probs by `scores_of` in the microbatches' field `name`.

        If there are values among the scores, they become the old values.
        """
        scored: Plan = []
        for minibatch in plan:
            scored.append([])
            for microbatch in minibatch:
                scores = scores_of(microbatch)
                old_values = {} if scores.values_T is None else {"old_values_T": scores.values_T}
                scored[-1].append(replace(microbatch, **{name: scores.logprobs_T}, **old_values))
                progress()
        return scored

    def _under(self, name: str, microbatch: Microbatch) -> Scores:
        """Score a microbatch under the policy for the pass `name`."""
        self.require(name)
        if name in self._frozen:
            return score(self._frozen[name], microbatch, self._sight)
        with without_adapter(self._model):
            return score(self._model, microbatch, self._sight)

    def _is_base(self, name: str) -> bool:
        """Return whether the policy for the pass `name` is the frozen base of the trained one."""
        return name == "reference" and has_adapter(self._model)

    def _logprobs_under(self, name: str, microbatch: Microbatch) -> torch.Tensor:
        return self._under(name, microbatch).logprobs_T

    def _values(self, microbatch: Microbatch) -> torch.Tensor:
        """Return the critic's values; a critic of its own needs no forward pass of the policy."""
        assert self._critic is not None, "a credit that needs values comes with a loss term that trains a critic"
        return self._critic.values(microbatch, lambda: forward(self._model, microbatch, self._sight)[1])

    def _chunks(self, branches: Sequence[Branch]) -> list[list[Row]]:
        weights = token_weights(branches, self._recipe.loss)
        most = self._recipe.train.max_tokens_per_microbatch
        rows = share_prompts(
            branches, weights, share=self.packed, max_tokens_per_microbatch=most, gathers=self._gathers
        )
        return own_chunks(rows, self._ranks, most, packed=self.packed, gathers=self._gathers)

    def _collated(self, rows: Sequence[Row]) -> Microbatch:
        positions = self._sight.positions if self._sight else None
        collated = collate(rows, packed=self.packed, positions=positions)
        return replace(collated, compute_dtype=self._compute_dtype).to(self._model.device)


def _num_groups(branches: Sequence[Branch]) -> int:
    return 1 + max((branch.group_index for branch in branches), default=-1)
