"""From branches to tensors of at most `max_tokens_per_microbatch` tokens.

Where the model allows it, all branches lie behind each other in one row, without padding, and branches that start with
the same prompt (the rollouts of a group do) share it: the prompt once, then each branch's tail. Only attention puts the
branches together again (`branch_attention.py`). The result is that of separate rows, for a fraction of the tokens.
Other models get one padded row per branch.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
import torch

from quartet.train.packing import Branch
from quartet.types import MemberUse

USE_NUMBERS = {use: number for number, use in enumerate(MemberUse)}
"""What stands for a member's use in tensors."""
ATTENTION_FACTOR = 4
"""Attention takes the branches of a packed row apart and pads them to the longest. Its positions, shared prompts and
padding included, are at most this multiple of `max_tokens_per_microbatch`: what attention then keeps for the backward
pass is about as much as all else does."""
LONGEST_TO_SHORTEST = 2
"""Where these positions are more than `max_tokens_per_microbatch`, branches differ in length by at most this factor,
within a row and between rows: at least half of each is tokens."""


@dataclass(frozen=True, eq=False)
class Microbatch:
    """B rows padded on the right to L tokens, and T trained tokens as flat tensors. In the packed form B is 1, and the
    row holds S branches of at most M tokens."""

    ids_BL: torch.Tensor
    sources_T: torch.Tensor
    """Index into the flattened B * L of the position that predicts the token."""
    targets_T: torch.Tensor
    temperatures_T: torch.Tensor
    rollout_logprobs_T: torch.Tensor
    advantages_T: torch.Tensor
    weights_T: torch.Tensor
    branches_T: torch.Tensor
    """Number of the token's branch, from 0."""
    returns_T: torch.Tensor
    uses_T: torch.Tensor
    """`USE_NUMBERS` of what the token's trajectory is there for."""
    branches: tuple[Branch, ...]
    """In the order of their tokens."""
    position_ids_BL: torch.Tensor | None = None
    """Place of each token in its branch; None in the padded form: there it is the column."""
    columns_SM: torch.Tensor | None = None
    """Column of each token of each branch, 0 behind its end; None in the padded form."""
    owners_L: torch.Tensor | None = None
    """Index into the flattened S * M of a branch's token that lies in the column; None in the padded form."""
    old_logprobs_T: torch.Tensor | None = None
    """Under the weights at the start of the train step; None when these are still the weights being trained."""
    reference_logprobs_T: torch.Tensor | None = None

    def to(self, device: torch.device) -> "Microbatch":
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        tensors = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
        return replace(self, **{name: tensor.to(device) for name, tensor in tensors.items()})


class Row(NamedTuple):
    """Branches with the same prompt, the longest first, and the token weight of each."""

    branches: list[Branch]
    weights: list[float]

    @property
    def prompt_tokens(self) -> int:
        return self.branches[0].prompt_tokens

    @property
    def num_tokens(self) -> int:
        """The prompt counts once."""
        return self.prompt_tokens + sum(branch.num_tokens - branch.prompt_tokens for branch in self.branches)

    @property
    def longest_branch(self) -> int:
        return self.branches[0].num_tokens

    @property
    def shortest_branch(self) -> int:
        return self.branches[-1].num_tokens


def share_prompts(
    branches: Sequence[Branch], weights: Sequence[float], *, share: bool, max_tokens_per_microbatch: int
) -> list[Row]:
    """Join branches with the same prompt, as many as fit into a microbatch; without `share` each stays alone.

    Longest branches first, ties in the given order: little padding, and the same branches give the same rows.
    """
    rows: list[Row] = []
    open_rows: dict[bytes, Row] = {}
    for branch, weight in sorted(zip(branches, weights, strict=True), key=lambda pair: -pair[0].num_tokens):
        prompt = branch.ids_L[: branch.prompt_tokens].tobytes()
        row = open_rows.get(prompt)
        if not share or row is None or not _takes(row, branch, max_tokens_per_microbatch):
            row = open_rows[prompt] = Row([], [])
            rows.append(row)
        row.branches.append(branch)
        row.weights.append(weight)
    return rows


def _takes(row: Row, branch: Branch, max_tokens: int) -> bool:
    """Whether a row has room for one more branch, which is no longer than those in it."""
    num_tokens = row.num_tokens + branch.num_tokens - branch.prompt_tokens
    return num_tokens <= max_tokens and _attention_fits(
        len(row.branches) + 1, row.longest_branch, branch.num_tokens, max_tokens
    )


def _attention_fits(num_branches: int, longest: int, shortest: int, max_tokens: int) -> bool:
    factor = ATTENTION_FACTOR if longest <= LONGEST_TO_SHORTEST * shortest else 1
    return num_branches * longest <= factor * max_tokens


def in_chunks(rows: Iterable[Row], max_tokens_per_microbatch: int, *, packed: bool) -> Iterator[list[Row]]:
    """Yield the rows of each microbatch, in the order of `share_prompts`: by their longest branch.

    A row that is longer than `max_tokens_per_microbatch` is a microbatch of its own. Only a branch that was sampled
    under another recipe can be: a replayed one, or one from before a resume with a smaller context.
    """
    pending: list[Row] = []
    for row in rows:
        if pending and not _fits(row, pending, max_tokens_per_microbatch, packed=packed):
            yield pending
            pending = []
        pending.append(row)
    if pending:
        yield pending


def _fits(row: Row, pending: list[Row], max_tokens: int, *, packed: bool) -> bool:
    """Whether a row goes into a microbatch whose first row has the longest branch."""
    longest = pending[0].longest_branch
    if not packed:
        return (len(pending) + 1) * longest <= max_tokens
    together = [*pending, row]
    num_branches = sum(len(other.branches) for other in together)
    shortest = min(other.shortest_branch for other in together)
    return sum(other.num_tokens for other in together) <= max_tokens and _attention_fits(
        num_branches, longest, shortest, max_tokens
    )


def collate(rows: Sequence[Row], *, packed: bool) -> Microbatch:
    """Rows as tensors, and their trained tokens one after the other. Unless `packed`, each row is one branch."""
    branches = [branch for row in rows for branch in row.branches]
    weights = [weight for row in rows for weight in row.weights]
    columns = list(_packed_columns(rows)) if packed else [np.arange(branch.num_tokens) for branch in branches]
    shape = (1, sum(row.num_tokens for row in rows)) if packed else (len(rows), max(map(len, columns)))
    ids_BL = np.zeros(shape, dtype=np.int64)
    sources, tokens, lengths = [], [], []
    for index, (branch, columns_M, weight) in enumerate(zip(branches, columns, weights, strict=True)):
        line = 0 if packed else index
        ids_BL[line, columns_M] = branch.ids_L
        trained = np.flatnonzero(branch.trained_L)
        sources.append(line * shape[1] + columns_M[trained - 1])
        tokens.append(_token_values(branch, trained, weight))
        lengths.append(len(trained))
    targets, temperatures, logprobs, advantages, returns, token_weights, uses = (
        torch.from_numpy(np.concatenate(part)) for part in zip(*tokens, strict=True)
    )
    return Microbatch(
        ids_BL=torch.from_numpy(ids_BL),
        sources_T=torch.from_numpy(np.concatenate(sources)),
        targets_T=targets,
        temperatures_T=temperatures,
        rollout_logprobs_T=logprobs,
        advantages_T=advantages,
        weights_T=token_weights,
        branches_T=torch.from_numpy(np.repeat(np.arange(len(lengths)), lengths)),
        returns_T=returns,
        uses_T=uses,
        branches=tuple(branch for row in rows for branch in row.branches),
        **(_placing(columns, shape[1]) if packed else {}),
    )


def _packed_columns(rows: Sequence[Row]) -> Iterator[np.ndarray]:
    """Column in the one row of each of a branch's tokens, branch after branch."""
    end = 0
    for row in rows:
        prompt = np.arange(end, end + row.prompt_tokens)
        end += row.prompt_tokens
        for branch in row.branches:
            tail_tokens = branch.num_tokens - branch.prompt_tokens
            yield np.concatenate([prompt, np.arange(end, end + tail_tokens)])
            end += tail_tokens


def _placing(columns: Sequence[np.ndarray], length: int) -> dict[str, torch.Tensor]:
    """Where the tokens of the packed branches lie, and back."""
    longest = max(map(len, columns))
    columns_SM = np.zeros((len(columns), longest), dtype=np.int64)
    position_ids_1L, owners_L = np.zeros((1, length), dtype=np.int64), np.zeros(length, dtype=np.int64)
    for index, columns_M in enumerate(columns):
        places_M = np.arange(len(columns_M))
        columns_SM[index, places_M] = columns_M
        position_ids_1L[0, columns_M] = places_M
        owners_L[columns_M] = index * longest + places_M
    values = {"position_ids_BL": position_ids_1L, "columns_SM": columns_SM, "owners_L": owners_L}
    return {name: torch.from_numpy(value) for name, value in values.items()}


def _token_values(branch: Branch, trained: np.ndarray, weight: float) -> tuple[np.ndarray, ...]:
    """Targets, temperatures, rollout log-probs, advantages, returns, weights and uses of a branch's trained tokens."""
    return (
        branch.ids_L[trained],
        branch.temperatures_L[trained],
        branch.rollout_logprobs_L[trained],
        branch.advantages_L[trained],
        branch.returns_L[trained],
        np.full(len(trained), weight, dtype=np.float32),
        np.full(len(trained), USE_NUMBERS[branch.use]),
    )
