"""From rows of branches (`rows.py`) to tensors.

Where the model allows it, all branches lie behind each other in one row, without padding, and what several of them
begin with lies there once. Only attention puts the branches together again (`branch_attention.py`). The result is that
of separate rows, for a fraction of the tokens. Other models get one padded row per branch.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch

from quartet.train.packing import Branch
from quartet.train.rows import Row
from quartet.types import Media, MemberUse

USE_NUMBERS = {use: number for number, use in enumerate(MemberUse)}
"""Number of each use of a member, as tensors hold it."""


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
    """Position of each token in its branch, `[3, B, L]` for a model with three; None where it is the column."""
    columns_SM: torch.Tensor | None = None
    """Column of each token of each branch, 0 behind its end; None in the padded form."""
    owners_L: torch.Tensor | None = None
    """Index into the flattened S * M of a branch's token that lies in the column; None in the padded form."""
    old_logprobs_T: torch.Tensor | None = None
    """Under the weights at the start of the train step; None when these are still the weights being trained."""
    reference_logprobs_T: torch.Tensor | None = None
    media: tuple[Media, ...] = ()
    """Pictures of the rows, in the order of their placeholders; one that branches share is there once."""

    def to(self, device: torch.device) -> "Microbatch":
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        tensors = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
        return replace(self, **{name: tensor.to(device) for name, tensor in tensors.items()})


Positions = Callable[[Branch], np.ndarray]
"""From a branch to the positions of its tokens, `[L]` or `[3, L]`."""


def collate(rows: Sequence[Row], *, packed: bool, positions: Positions | None = None) -> Microbatch:
    """Rows as tensors, and their trained tokens one after the other. Unless `packed`, each row is one branch.

    `positions` is given for a model whose positions are not places in the branch."""
    branches = [branch for row in rows for branch in row.branches]
    weights = [weight for row in rows for weight in row.weights]
    longest = max(branch.num_tokens for branch in branches)
    shape = (1, sum(row.num_tokens for row in rows)) if packed else (len(rows), longest)
    if packed:
        places = list(_packed_columns(rows))
    else:
        places = [line * longest + np.arange(branch.num_tokens) for line, branch in enumerate(branches)]
    ids_X = np.zeros(shape[0] * shape[1], dtype=np.int64)
    sources, tokens, lengths = [], [], []
    for branch, places_M, weight in zip(branches, places, weights, strict=True):
        ids_X[places_M] = branch.ids_L
        trained = np.flatnonzero(branch.trained_L)
        sources.append(places_M[trained - 1])
        tokens.append(_token_values(branch, trained, weight))
        lengths.append(len(trained))
    targets, temperatures, logprobs, advantages, returns, token_weights, uses = (
        torch.from_numpy(np.concatenate(part)) for part in zip(*tokens, strict=True)
    )
    return Microbatch(
        ids_BL=torch.from_numpy(ids_X).view(shape),
        sources_T=torch.from_numpy(np.concatenate(sources)),
        targets_T=targets,
        temperatures_T=temperatures,
        rollout_logprobs_T=logprobs,
        advantages_T=advantages,
        weights_T=token_weights,
        branches_T=torch.from_numpy(np.repeat(np.arange(len(lengths)), lengths)),
        returns_T=returns,
        uses_T=uses,
        branches=tuple(branches),
        position_ids_BL=_position_ids(branches, places, shape, positions) if packed or positions else None,
        media=_media(branches, places),
        **(_placing(places, shape[1]) if packed else {}),
    )


def _packed_columns(rows: Sequence[Row]) -> Iterator[np.ndarray]:
    """Column in the one row of each of a branch's tokens, branch after branch."""
    end = 0
    for row in rows:
        columns: list[np.ndarray] = []
        for branch, shared in zip(row.branches, row.shared, strict=True):
            tail = np.arange(end, end + branch.num_tokens - shared.num_tokens)
            beginning = columns[shared.branch][: shared.num_tokens] if columns else tail[:0]
            columns.append(np.concatenate([beginning, tail]))
            end += len(tail)
        yield from columns


def _placing(columns: Sequence[np.ndarray], length: int) -> dict[str, torch.Tensor]:
    """Where the tokens of the packed branches lie, and back."""
    longest = max(map(len, columns))
    columns_SM = np.zeros((len(columns), longest), dtype=np.int64)
    owners_L = np.zeros(length, dtype=np.int64)
    for index, columns_M in enumerate(columns):
        places_M = np.arange(len(columns_M))
        columns_SM[index, places_M] = columns_M
        owners_L[columns_M] = index * longest + places_M
    return {"columns_SM": torch.from_numpy(columns_SM), "owners_L": torch.from_numpy(owners_L)}


def _position_ids(
    branches: Sequence[Branch], places: Sequence[np.ndarray], shape: tuple[int, int], positions: Positions | None
) -> torch.Tensor:
    """`[B, L]`, or `[3, B, L]`; 0 at padding."""
    found = [positions(branch) if positions else np.arange(branch.num_tokens) for branch in branches]
    axes = found[0].shape[:-1]
    position_ids_X = np.zeros((*axes, shape[0] * shape[1]), dtype=np.int64)
    for places_M, positions_M in zip(places, found, strict=True):
        position_ids_X[..., places_M] = positions_M
    return torch.from_numpy(position_ids_X).view(*axes, *shape)


def _media(branches: Sequence[Branch], places: Sequence[np.ndarray]) -> tuple[Media, ...]:
    """The branches' pictures by the place of their first placeholder, where a shared one has but one."""
    found = {
        int(places_M[one.offset]): one
        for branch, places_M in zip(branches, places, strict=True)
        for one in branch.media
    }
    return tuple(found[place] for place in sorted(found))


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
