"""From branches to padded tensors of at most `max_tokens_per_microbatch` tokens.

Branches that start with the same prompt (the rollouts of a group often do, turn after turn) share one row: the prompt
once, then each branch's tail, which sees the prompt and itself but no other tail. The result is that of separate rows,
for a fraction of the tokens.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
import torch

from quartet.errors import ConfigError
from quartet.train.packing import Branch


@dataclass(frozen=True, eq=False)
class Microbatch:
    """B rows padded on the right to L tokens, and T trained tokens as flat tensors."""

    ids_BL: torch.Tensor
    position_ids_BL: torch.Tensor | None
    """None where no row is shared: then positions are 0, 1, 2, ... and attention is plainly causal."""
    visible_B1LL: torch.Tensor | None
    """True where the query (third dimension) sees the key (fourth); None means plainly causal."""
    sources_T: torch.Tensor
    """Index into the flattened B * L of the position that predicts the token."""
    targets_T: torch.Tensor
    temperatures_T: torch.Tensor
    rollout_logprobs_T: torch.Tensor
    advantages_T: torch.Tensor
    weights_T: torch.Tensor
    branches_T: torch.Tensor
    """Number of the token's branch, from 0."""
    replayed_T: torch.Tensor
    """True at tokens of stored trajectories that joined a group."""
    old_logprobs_T: torch.Tensor | None = None
    """Under the weights at the start of the train step; None when these are still the weights being trained."""
    reference_logprobs_T: torch.Tensor | None = None

    def to(self, device: torch.device) -> "Microbatch":
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: value.to(device) for name, value in values.items() if value is not None})


class Row(NamedTuple):
    """Branches with the same prompt, and the token weight of each."""

    branches: list[Branch]
    weights: list[float]

    @property
    def prompt_tokens(self) -> int:
        return self.branches[0].prompt_tokens

    @property
    def tail_tokens(self) -> int:
        return sum(branch.num_tokens - branch.prompt_tokens for branch in self.branches)

    @property
    def num_tokens(self) -> int:
        return self.prompt_tokens + self.tail_tokens


def share_prompts(branches: Sequence[Branch], weights: Sequence[float], *, share: bool) -> list[Row]:
    """Join branches with the same prompt while their tails together stay shorter than it: attention is quadratic in
    the row, so long tails are cheaper apart."""
    rows: list[Row] = []
    open_rows: dict[bytes, Row] = {}
    for branch, weight in zip(branches, weights, strict=True):
        prompt = branch.ids_L[: branch.prompt_tokens].tobytes()
        row = open_rows.get(prompt)
        tail_tokens = branch.num_tokens - branch.prompt_tokens
        if not share or row is None or row.tail_tokens + tail_tokens > branch.prompt_tokens:
            row = open_rows[prompt] = Row([], [])
            rows.append(row)
        row.branches.append(branch)
        row.weights.append(weight)
    return rows


def in_chunks(rows: Iterable[Row], max_tokens_per_microbatch: int) -> Iterator[list[Row]]:
    """The rows of each microbatch. Longest first, ties in the given order: little padding, and the same rows give the
    same microbatches.

    Raises `ConfigError` when one row alone is too long.
    """
    pending: list[Row] = []
    for row in sorted(rows, key=lambda row: -row.num_tokens):
        if row.num_tokens > max_tokens_per_microbatch:
            raise ConfigError(
                f"a training sequence of {row.num_tokens} tokens does not fit train.max_tokens_per_microbatch = "
                f"{max_tokens_per_microbatch}",
                "raise it to at least twice engine.max_context_tokens",
            )
        if pending and (len(pending) + 1) * pending[0].num_tokens > max_tokens_per_microbatch:
            yield pending
            pending = []
        pending.append(row)
    if pending:
        yield pending


def collate(rows: Sequence[Row]) -> Microbatch:
    """Pad rows to the longest and flatten their trained tokens."""
    shape = (len(rows), max(row.num_tokens for row in rows))
    ids_BL, position_ids_BL, segments_BL = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    sources, tokens, lengths = [], [], []
    for index, row in enumerate(rows):
        start = row.prompt_tokens
        ids_BL[index, :start] = row.branches[0].ids_L[:start]
        position_ids_BL[index, :start] = np.arange(start)
        for segment, (branch, weight) in enumerate(zip(row.branches, row.weights, strict=True), start=1):
            columns_L = _columns(branch, start)
            tail = columns_L[branch.prompt_tokens :]
            ids_BL[index, tail] = branch.ids_L[branch.prompt_tokens :]
            position_ids_BL[index, tail] = np.arange(branch.prompt_tokens, branch.num_tokens)
            segments_BL[index, tail] = segment
            trained = np.flatnonzero(branch.trained_L)
            sources.append(index * shape[1] + columns_L[trained - 1])
            tokens.append(_token_values(branch, trained, weight))
            lengths.append(len(trained))
            start += len(tail)
    shared = any(len(row.branches) > 1 for row in rows)
    targets, temperatures, logprobs, advantages, weights, replayed = (
        torch.from_numpy(np.concatenate(part)) for part in zip(*tokens, strict=True)
    )
    return Microbatch(
        ids_BL=torch.from_numpy(ids_BL),
        position_ids_BL=torch.from_numpy(position_ids_BL) if shared else None,
        visible_B1LL=_visible(torch.from_numpy(segments_BL)) if shared else None,
        sources_T=torch.from_numpy(np.concatenate(sources)),
        targets_T=targets,
        temperatures_T=temperatures,
        rollout_logprobs_T=logprobs,
        advantages_T=advantages,
        weights_T=weights,
        branches_T=torch.from_numpy(np.repeat(np.arange(len(lengths)), lengths)),
        replayed_T=replayed,
    )


def _columns(branch: Branch, tail_start: int) -> np.ndarray:
    """Column in the row of each of the branch's tokens."""
    tail_length = branch.num_tokens - branch.prompt_tokens
    return np.concatenate([np.arange(branch.prompt_tokens), np.arange(tail_start, tail_start + tail_length)])


def _token_values(branch: Branch, trained: np.ndarray, weight: float) -> tuple[np.ndarray, ...]:
    """Targets, temperatures, rollout log-probs, advantages, weights and replayed of the branch's trained tokens."""
    constant = np.ones(len(trained), dtype=np.float32)
    return (
        branch.ids_L[trained],
        branch.temperatures_L[trained],
        branch.rollout_logprobs_L[trained],
        constant * np.float32(branch.advantage),
        constant * np.float32(weight),
        np.full(len(trained), branch.replayed),
    )


def _visible(segments_BL: torch.Tensor) -> torch.Tensor:
    """Causal, and only the prompt (segment 0) or the token's own segment. Padding is segment 0 and always behind."""
    length = segments_BL.shape[1]
    causal_LL = torch.ones(length, length, dtype=torch.bool).tril()
    keys_B1L, queries_BL1 = segments_BL.unsqueeze(1), segments_BL.unsqueeze(2)
    return (causal_LL & ((keys_B1L == 0) | (keys_B1L == queries_BL1))).unsqueeze(1)
