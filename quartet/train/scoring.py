"""Forward passes of a train step: minibatches of microbatches, and scores under weights that do not change.

`Scorer` computes, `quartet.train.step` trains.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

import numpy as np
import torch
from transformers import PreTrainedModel

from quartet.config import Recipe
from quartet.errors import ConfigError
from quartet.policy.rope import refuse_length_dependent_rope
from quartet.train.aggregation import token_weights
from quartet.train.assign import Passes
from quartet.train.branch_attention import attends_everywhere
from quartet.train.forward import Scores, score
from quartet.train.linear import train_by_the_faster_library
from quartet.train.microbatch import Microbatch, collate
from quartet.train.packing import Branch
from quartet.train.rows import Row, in_chunks, share_prompts
from quartet.train.sight import Sight
from quartet.train.value_head import ValueHead

Plan = list[list[Microbatch]]
"""One list of microbatches for each minibatch, in the order of training."""


class Scorer:
    """Scores branches under the trained policy and under the policies of `frozen`."""

    def __init__(
        self,
        model: PreTrainedModel,
        value_head: ValueHead | None,
        recipe: Recipe,
        frozen: Mapping[str, PreTrainedModel],
        sight: Sight | None,
    ) -> None:
        for scored in (model, *frozen.values()):
            refuse_length_dependent_rope(scored.config.get_text_config(), recipe.engine.max_context_tokens)
            train_by_the_faster_library(scored)
        self.packed = all(map(attends_everywhere, (model, *frozen.values())))
        """True if the branches of a microbatch are packed into one row."""
        self._model, self._value_head, self._recipe = model, value_head, recipe
        self._frozen, self._sight = frozen, sight

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
        plan = [[self._collated(rows) for rows in self._chunks(minibatch)] for minibatch in dealt if minibatch]
        unscored = 1 if self._recipe.train.epochs == 1 else 0
        plan = plan[:unscored] + self._scored(plan[unscored:], self._model, "old_logprobs_T", progress)
        if "reference" in needs:
            plan = self._scored(plan, self.frozen("reference"), "reference_logprobs_T", progress)
        return plan

    def passes(self, needs: Set[str], branches: Sequence[Branch], progress: Callable[[], None]) -> Passes:
        """Return the results of the forward passes `needs`, in nats, under the present weights."""
        found: dict[str, list[np.ndarray]] = {}
        if "entropies" in needs:
            found["entropies"] = self._each_token(self._model, branches, lambda scores: scores.entropies_T, progress)
        if "values" in needs:
            found["values"] = self._each_token(self._model, branches, _values, progress)
        for name in sorted(needs & {"reference", "teacher"}):
            found[name] = self._each_token(self.frozen(name), branches, lambda scores: scores.logprobs_T, progress)
        return found

    def score(self, microbatch: Microbatch, *, entropy_gradient: bool = False) -> Scores:
        """Score a microbatch under the trained policy; with values if there is a value head."""
        head = self._value_head
        return score(self._model, microbatch, self._sight, value_head=head, entropy_gradient=entropy_gradient)

    def frozen(self, name: str) -> PreTrainedModel:
        """Return the policy for the pass `name`. Raises `ConfigError` if it was not given."""
        if name not in self._frozen:
            raise ConfigError(f"the loss or the credit needs the pass {name!r}", "pass its policy in `frozen`")
        return self._frozen[name]

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
            values_T = column(self._under(model, self._collated(rows))).cpu().numpy()
            in_order = [branch for row in rows for branch in row.branches]
            ends = np.cumsum([branch.num_trained_tokens for branch in in_order])
            found |= dict(zip(map(id, in_order), np.split(values_T, ends[:-1]), strict=True))
            progress()
        return [found[id(branch)] for branch in branches]

    @torch.no_grad()
    def _scored(self, plan: Plan, model: PreTrainedModel, name: str, progress: Callable[[], None]) -> Plan:
        """Return the plan with the log-probs under `model` in the microbatches' field `name`.

        If `model` is the trained one, the values of its value head become the old values.
        """
        scored: Plan = []
        for minibatch in plan:
            scored.append([])
            for microbatch in minibatch:
                scores = self._under(model, microbatch)
                old_values = {"old_values_T": scores.values_T} if model is self._model else {}
                scored[-1].append(replace(microbatch, **{name: scores.logprobs_T}, **old_values))
                progress()
        return scored

    def _under(self, model: PreTrainedModel, microbatch: Microbatch) -> Scores:
        return self.score(microbatch) if model is self._model else score(model, microbatch, self._sight)

    def _chunks(self, branches: Sequence[Branch]) -> Iterator[list[Row]]:
        weights = token_weights(branches, self._recipe.loss)
        most = self._recipe.train.max_tokens_per_microbatch
        rows = share_prompts(branches, weights, share=self.packed, max_tokens_per_microbatch=most)
        return in_chunks(rows, most, packed=self.packed)

    def _collated(self, rows: Sequence[Row]) -> Microbatch:
        positions = self._sight.positions if self._sight else None
        return collate(rows, packed=self.packed, positions=positions).to(self._model.device)


def _values(scores: Scores) -> torch.Tensor:
    assert scores.values_T is not None, "a credit that needs values comes with a loss term that trains them"
    return scores.values_T


def _num_groups(branches: Sequence[Branch]) -> int:
    return 1 + max((branch.group_index for branch in branches), default=-1)
