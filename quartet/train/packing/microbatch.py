"""Tensors of a microbatch, made from rows of branches (`rows.py`).

If the model allows it, all branches are packed into one row, one after another and without padding, and a prefix that
several branches share is stored once. Attention then follows the tree of the branches (`attention.py`). The result is
the same as with one row per branch, for a fraction of the tokens. Other models get one padded row per branch.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch

from quartet.train.packing.branches import Branch
from quartet.train.packing.rows import Row
from quartet.train.packing.tree import Tree
from quartet.types import Media, MemberUse

USE_NUMBERS = {use: number for number, use in enumerate(MemberUse)}
"""Number that stands for each use of a member in tensors."""


@dataclass(frozen=True, eq=False)
class Microbatch:
    """B rows, padded on the right to L tokens, and flat tensors of the T trained tokens.

    In the packed form B is 1, and the row holds all branches.
    """

    ids_BL: torch.Tensor
    sources_T: torch.Tensor
    """Index, into the flattened B * L positions, of the position that predicts the token."""
    targets_T: torch.Tensor
    temperatures_T: torch.Tensor
    rollout_logprobs_T: torch.Tensor
    advantages_T: torch.Tensor
    weights_T: torch.Tensor
    branches_T: torch.Tensor
    """Index of the token's branch in `branches`."""
    returns_T: torch.Tensor
    lags_T: torch.Tensor
    trajectories_T: torch.Tensor
    """Index of the token's trajectory in the batch."""
    groups_T: torch.Tensor
    """Index of the token's group in the batch."""
    roles_T: torch.Tensor
    """Index in the batch of the role that the token's trajectory has in its rollout."""
    uses_T: torch.Tensor
    """Use of the token's trajectory in the batch, as a number of `USE_NUMBERS`."""
    branches: tuple[Branch, ...]
    """Branches of the microbatch, in the order of their tokens."""
    position_ids_BL: torch.Tensor | None = None
    """Position of each token in its branch, `[3, B, L]` for a model with three-dimensional positions; None if it equals
    the column."""
    tree: Tree | None = None
    """Places of the branches in the packed row; None in the padded form."""
    old_logprobs_T: torch.Tensor | None = None
    """Log-probs under the weights at the start of the train step; None if these weights have not changed yet."""
    reference_logprobs_T: torch.Tensor | None = None
    """Log-probs under the reference policy; None if no loss term needs them."""
    old_values_T: torch.Tensor | None = None
    """Values under the weights at the start of the train step; None without a critic or if `old_logprobs_T` is."""
    compute_dtype: torch.dtype = torch.float32
    """Data type of matrix products in forward passes."""
    train_step: int = 0
    """Number of the train step that trains the microbatch."""
    media: tuple[Media, ...] = ()
    """Pictures of the rows, in the order of their placeholders; a picture that branches share occurs once."""

    @property
    def is_empty(self) -> bool:
        """True if no token is trained. Its passes only keep the ranks in step (`rows.own_chunks`)."""
        return not len(self.targets_T)

    def to(self, device: torch.device) -> "Microbatch":
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        tensors = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
        moved = {name: tensor.to(device) for name, tensor in tensors.items()}
        return replace(self, **moved, tree=self.tree.to(device) if self.tree else None)


Positions = Callable[[Branch], np.ndarray]
"""Function that returns the positions of a branch's tokens, `[L]` or `[3, L]`."""


def collate(rows: Sequence[Row], *, packed: bool, positions: Positions | None = None) -> Microbatch:
    """Return the microbatch of some rows. Unless `packed`, each row must hold a single branch.

    `positions` is given for a model whose positions are not simply the tokens' indices in the branch.
    """
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
    targets, temperatures, logprobs, advantages, returns, lags, token_weights, trajectories, groups, roles, uses = (
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
        lags_T=lags,
        trajectories_T=trajectories,
        groups_T=groups,
        roles_T=roles,
        uses_T=uses,
        branches=tuple(branches),
        position_ids_BL=_position_ids(branches, places, shape, positions) if packed or positions else None,
        media=_media(branches, places),
        tree=Tree(places, [shared.num_tokens for row in rows for shared in row.shared], shape[1]) if packed else None,
    )


def _packed_columns(rows: Sequence[Row]) -> Iterator[np.ndarray]:
    """Yield for each branch the columns of its tokens in the packed row."""
    end = 0
    for row in rows:
        columns: list[np.ndarray] = []
        for branch, shared in zip(row.branches, row.shared, strict=True):
            tail = np.arange(end, end + branch.num_tokens - shared.num_tokens)
            beginning = columns[shared.branch][: shared.num_tokens] if columns else tail[:0]
            columns.append(np.concatenate([beginning, tail]))
            end += len(tail)
        yield from columns


def _position_ids(
    branches: Sequence[Branch], places: Sequence[np.ndarray], shape: tuple[int, int], positions: Positions | None
) -> torch.Tensor:
    """Return position ids, `[B, L]` or `[3, B, L]`; 0 at padding."""
    found = [positions(branch) if positions else np.arange(branch.num_tokens) for branch in branches]
    axes = found[0].shape[:-1]
    position_ids_X = np.zeros((*axes, shape[0] * shape[1]), dtype=np.int64)
    for places_M, positions_M in zip(places, found, strict=True):
        position_ids_X[..., places_M] = positions_M
    return torch.from_numpy(position_ids_X).view(*axes, *shape)


def _media(branches: Sequence[Branch], places: Sequence[np.ndarray]) -> tuple[Media, ...]:
    """Return the branches' pictures by the position of their first placeholder, so that a shared one occurs once."""
    found = {
        int(places_M[one.offset]): one
        for branch, places_M in zip(branches, places, strict=True)
        for one in branch.media
    }
    return tuple(found[place] for place in sorted(found))


def _token_values(branch: Branch, trained: np.ndarray, weight: float) -> tuple[np.ndarray, ...]:
    """Return the values of a branch's trained tokens, in the order in which `collate` reads them."""
    count = len(trained)
    return (
        branch.ids_L[trained],
        branch.temperatures_L[trained],
        branch.rollout_logprobs_L[trained],
        branch.advantages_L[trained],
        branch.returns_L[trained],
        branch.lags_L[trained],
        np.full(count, weight, dtype=np.float32),
        np.full(count, branch.trajectory_index),
        np.full(count, branch.group_index),
        np.full(count, branch.role_index),
        np.full(count, USE_NUMBERS[branch.use]),
    )
