"""Tails and branches of a packed row as consecutive segments, as attention over variable lengths takes them."""

from typing import NamedTuple

import numpy as np
import torch

from quartet.train.packing.tree import Tree


class Repeats(NamedTuple):
    """Columns of the tokens of all branches, one branch after another (X tokens), and how often each of the row's L
    columns is among them."""

    columns_X: torch.Tensor
    firsts_L: torch.Tensor
    """Place in `columns_X` of each column's first occurrence."""
    others_E: torch.Tensor
    """Places in `columns_X` of all other occurrences."""
    columns_E: torch.Tensor
    """Columns at these places."""


class Segments(NamedTuple):
    """S branches; those without a tail are left out, since they have no token of their own."""

    repeats: Repeats
    tail_ends: torch.Tensor
    """Ends of the tails in the packed row, after a leading 0: int32 `[S + 1]`."""
    branch_ends: torch.Tensor
    """Ends of the branches in `repeats.columns_X`, after a leading 0: int32 `[S + 1]`."""
    longest_tail: int
    longest_branch: int


def segments_of(tree: Tree) -> Segments:
    """Return the segments of a packed row, on the device of its tree."""
    each = [(own, len(own) - shared) for own, shared in tree.branches if len(own) > shared]
    lengths = np.array([[tail, len(own)] for own, tail in each], dtype=np.int32)
    ends = np.concatenate([np.zeros((1, 2), dtype=np.int32), lengths.cumsum(0, dtype=np.int32)])
    tail_ends, branch_ends = (torch.from_numpy(column.copy()).to(tree.device) for column in ends.T)
    repeats = repeats_of(np.concatenate([own for own, _ in each]), tree.num_columns)
    longest_tail, longest_branch = lengths.max(axis=0).tolist()
    return Segments(
        Repeats(*(one.to(tree.device) for one in repeats)), tail_ends, branch_ends, longest_tail, longest_branch
    )


def repeats_of(columns: np.ndarray, num_columns: int) -> Repeats:
    """Return the occurrences of the columns 0 to `num_columns - 1`, all of which are among `columns`."""
    _, firsts = np.unique(columns, return_index=True)
    assert len(firsts) == num_columns
    is_other = np.ones(len(columns), dtype=bool)
    is_other[firsts] = False
    others = np.flatnonzero(is_other)
    return Repeats(*map(torch.from_numpy, (columns, firsts, others, columns[others])))
