"""A policy that is a table of probabilities, sampled here and trained by Quartet's train step.

The next token depends on the last token alone: logits are a row of the table, as in a bigram model. The model is a
decoder without layers, so packing, credit, loss, aggregation and optimizer are those of a real run. Only the engine,
the environments and the ledger are left out, and a run of thousands of rollouts takes a second.
"""

import random
from abc import ABC, abstractmethod
from bisect import bisect
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from quartet.config import Recipe
from quartet.on_progress import no_progress
from quartet.recipe.file import parse_recipe
from quartet.train.assign import assign, credits_of, needs_of
from quartet.train.packing.branches import pack_batch
from quartet.train.step import Learner
from quartet.train.train_batch import train_batch
from quartet.types import Batch, Group, GroupMember

NEVER = -1e4
"""Logit of a token that is never said after another; its gradient is exactly 0."""
SMALLEST_VOCABULARY = 8
"""Number of tokens with which the trainer checks a model."""
_DEFAULTS: dict[str, Any] = {
    "name": "table",
    "model": {"path": "table"},
    "env": {"name": "bandit"},
    "admission": {"max_lag": 0},
    "filters": [],
    "train": {"learning_rate": 0.05, "max_tokens_per_microbatch": 1_000_000, "groups_per_batch": 1},
}


class Table(ABC):
    """The initial probabilities of a policy."""

    @abstractmethod
    def logits(self) -> np.ndarray:
        """Return the initial policy `[V, V]`: entry `[s, t]` is the logit of token t after token s."""

    def features(self) -> np.ndarray:
        """Return what the policy sees of each last token, rows of the same length `[V, H]`; by default its identity."""
        return np.eye(len(self.logits()))


class TablePolicy:
    """The trained table of one run, and the train steps that change it."""

    def __init__(self, table: Table, settings: Sequence[str], seed: int, delay_train_steps: int | None = None) -> None:
        self.recipe = recipe_of([*settings, f"seed={seed}"])
        self._delay = self.recipe.admission.max_lag if delay_train_steps is None else delay_train_steps
        self._features_VH = table.features()
        model = _model(self._features_VH, table.logits())
        self._learner = Learner(model, self.recipe, {"reference": deepcopy(model)})
        self._credits = credits_of(self.recipe)
        self._waiting: deque[list[list[GroupMember]]] = deque()
        self.version = 0
        self.tokens = 0
        """Tokens generated for training so far."""
        self.metrics: Mapping[str, float] = {}
        """Metrics of the last train step."""
        self._renew()

    def sample(self, last: int, draw: random.Random) -> tuple[int, float]:
        """Return a token after `last`, and its log-prob."""
        sums = self._sums[last]
        token = min(bisect(sums, draw.random() * sums[-1]), len(sums) - 1)
        return token, self._logprobs[last][token]

    def chance(self, last: int, token: int) -> float:
        """Return the probability of `token` after `last`."""
        return float(np.exp(self._logprobs[last][token]))

    def entropy_nats(self, last: int) -> float:
        """Return the entropy of the token after `last`."""
        logprobs_V = np.array(self._logprobs[last])
        return float(-(np.exp(logprobs_V) * logprobs_V).sum())

    def train(self, groups: list[list[GroupMember]]) -> None:
        """Train on these groups after `delay_train_steps` others, by default the largest lag."""
        self._waiting.append(groups)
        if len(self._waiting) > self._delay:
            self.train_now(self._waiting.popleft())

    def train_now(self, groups: list[list[GroupMember]]) -> None:
        """Train on these groups at once."""
        _, self.metrics = train_batch(
            self._batch(groups),
            self._learner,
            self.recipe,
            self._credits,
            progress=no_progress,
            phases=lambda phase: nullcontext(),
        )
        self.version += 1
        self._renew()

    def gradient(self, groups: list[list[GroupMember]]) -> np.ndarray:
        """Return the gradient of the loss `[V, V]` in the logits, without a train step."""
        packed = pack_batch(self._batch(groups), self.recipe.admission.max_lag)
        passes = self._learner.passes(needs_of(self._credits), packed.branches, no_progress)
        packed = assign(self._batch(groups), packed, self._credits, passes)
        self._learner.rehearse(self._learner.plan(packed.branches, 1, no_progress), no_progress)
        gradient_VH = self._learner.model.get_parameter("lm_head.weight").grad
        assert gradient_VH is not None
        return gradient_VH.numpy().T.copy()

    def _batch(self, groups: list[list[GroupMember]]) -> Batch:
        numbered = [
            Group(group_id=number, task=members[0].trajectory.task, members=members)
            for number, members in enumerate(groups)
        ]
        step = self.version + 1
        return Batch(batch_id=step, attempt=1, train_step=step, start_version=self.version, groups=numbered)

    @torch.no_grad()
    def _renew(self) -> None:
        weights_VH = self._learner.model.get_parameter("lm_head.weight")
        logits_VV = torch.from_numpy(self._features_VH).float() @ weights_VH.T
        logprobs_VV = logits_VV.log_softmax(-1)
        self._logprobs: list[list[float]] = logprobs_VV.tolist()
        self._sums = [list(accumulate(row)) for row in logprobs_VV.exp().tolist()]


def logits_of(rows: Mapping[int, Mapping[int, float]], vocabulary: int) -> np.ndarray:
    """Return logits `[V, V]` from the probabilities of the tokens after each token; others are never said."""
    size = max(vocabulary, SMALLEST_VOCABULARY)
    logits = np.full((size, size), NEVER)
    for last in range(size):
        for token, share in rows.get(last, {0: 1.0}).items():
            logits[last, token] = np.log(share)
    return logits


def recipe_of(settings: Sequence[str]) -> Recipe:
    """Return the recipe of a run, with settings as values of `--set`."""
    return parse_recipe(_DEFAULTS, "benchmarks/learning_experiments/table.py", list(settings))


def _model(features_VH: np.ndarray, logits_VV: np.ndarray) -> Qwen3ForCausalLM:
    """Return the table as a decoder without layers; only the output matrix is trained."""
    vocabulary, width = features_VH.shape
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocabulary,
            hidden_size=width,
            num_hidden_layers=0,
            rms_norm_eps=1e-12,
            tie_word_embeddings=False,
            intermediate_size=8,
            num_attention_heads=1,
            num_key_value_heads=1,
            head_dim=8,
        )
    ).eval()
    weights_HV, *_ = np.linalg.lstsq(features_VH, logits_VV)
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(torch.from_numpy(features_VH))
        model.model.norm.weight.fill_(width**-0.5)  # undoes the division by the root of the mean square
        model.lm_head.weight.copy_(torch.from_numpy(weights_HV.T))
    model.config.layer_types = None  # no packing: finding shared prefixes would take longer than the model
    for fixed in (model.model.embed_tokens, model.model.norm):
        fixed.requires_grad_(False)
    return model
