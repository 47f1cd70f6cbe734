"""Bare packed loop in PyTorch and transformers: what an engineer writes without a framework, with care for speed.

The sequences of a microbatch stand in one row without padding; attention is PyTorch's, causal, for each sequence; the
head is applied only where a trained token is predicted. Prompts are not shared. A step starts from sequences with
advantages, and does nothing but the loss of PPO, its gradient, clipping and AdamW.

The contender `bare` computes matrix products with `torch.nn.Linear`: no public setting of PyTorch chooses another
library for float32 on a CPU. The contender `bare_faster_library` has Quartet's linear layers, so its ratio leaves out
what the library contributes.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from transformers import AttentionInterface

from benchmarks.trainer_contenders.base import (
    CLIP_HIGH,
    CLIP_LOW,
    LEARNING_RATE,
    MAX_GRAD_NORM,
    Turns,
    Work,
    new_model,
)
from quartet.train.linear import train_by_the_faster_library
from quartet.train.packing.branches import Branch

NAME = "bare_packed"


class Packed(NamedTuple):
    """Row of L tokens in sequences of the given lengths; T of them are trained."""

    ids_1L: torch.Tensor
    positions_1L: torch.Tensor
    lengths: list[int]
    sources_T: torch.Tensor
    targets_T: torch.Tensor
    advantages_T: torch.Tensor


def train(turns: Turns, branches: Sequence[Branch], work: Work, *, faster_library: bool) -> None:
    model = new_model(work.policy)
    model.config._attn_implementation = NAME
    if faster_library:
        train_by_the_faster_library(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0, fused=True)
    while True:
        turns.begin()
        total = sum(int(branch.trained_L.sum()) for branch in branches)
        optimizer.zero_grad(set_to_none=True)
        for sequences in microbatches(branches, work.microbatch_tokens):
            torch.autograd.backward(loss(model, packed(sequences)) / total)
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
        optimizer.step()
        turns.end()


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    lengths: list[int],
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    each = zip(*(part.split(lengths, dim=2) for part in (query, key, value)), strict=True)
    outputs = [F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True) for q, k, v in each]
    return torch.cat(outputs, dim=2).transpose(1, 2), None


AttentionInterface.register(NAME, attend)


def microbatches(branches: Sequence[Branch], max_tokens: int) -> Iterator[list[Branch]]:
    """Yield sequences of at most `max_tokens` tokens together, longest first."""
    pending: list[Branch] = []
    for branch in sorted(branches, key=lambda one: -one.num_tokens):
        if pending and sum(one.num_tokens for one in pending) + branch.num_tokens > max_tokens:
            yield pending
            pending = []
        pending.append(branch)
    yield pending


def packed(sequences: Sequence[Branch]) -> Packed:
    lengths = [one.num_tokens for one in sequences]
    ids_L = np.concatenate([one.ids_L for one in sequences])
    trained_L = np.concatenate([one.trained_L for one in sequences])
    positions_L = np.concatenate([np.arange(length) for length in lengths])
    advantages_L = np.concatenate([one.advantages_L for one in sequences])
    trained = np.flatnonzero(trained_L)
    columns = (ids_L[None], positions_L[None], trained - 1, ids_L[trained], advantages_L[trained])
    ids_1L, positions_1L, *rest = map(torch.from_numpy, columns)
    return Packed(ids_1L, positions_1L, lengths, *rest)


def loss(model: Any, batch: Packed) -> torch.Tensor:
    no_mask = torch.empty(1, 1, 0, 0)  # transformers makes no mask of its own then
    hidden_1LD = model.model(
        input_ids=batch.ids_1L,
        position_ids=batch.positions_1L,
        attention_mask=no_mask,
        use_cache=False,
        lengths=batch.lengths,
    ).last_hidden_state
    logits_TV = model.lm_head(hidden_1LD[0, batch.sources_T])
    logprobs_T = -F.cross_entropy(logits_TV, batch.targets_T, reduction="none")
    ratio_T = (logprobs_T - logprobs_T.detach()).exp()
    clipped_T = ratio_T.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH)
    return -torch.minimum(ratio_T * batch.advantages_T, clipped_T * batch.advantages_T).sum()
