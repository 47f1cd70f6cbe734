"""Tree of the branches in a packed row: which columns of the row the tokens of each branch have."""

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import torch

CPU = torch.device("cpu")


class Tree:
    """S branches of at most M tokens in a packed row of L columns.

    The tail of a branch holds the tokens that it shares with no earlier branch; they are in neighbouring columns. The
    context of a branch, the tokens before its tail, is a list of ranges of columns.
    """

    def __init__(
        self,
        columns: Sequence[np.ndarray],
        shared: Sequence[int],
        num_columns: int,
        device: torch.device = CPU,
    ) -> None:
        """Make the tree. `columns`: the columns of each branch's tokens. `shared`: the number of tokens before each
        branch's tail. The properties `columns` and `owners` return tensors on `device`."""
        self._columns, self._shared, self.num_columns, self.device = columns, shared, num_columns, device

    def to(self, device: torch.device) -> "Tree":
        return Tree(self._columns, self._shared, self.num_columns, device)

    @cached_property
    def spans(self) -> np.ndarray:
        """`[S, 4]`: first column and length of each tail; index of the first range, and number of ranges, of its
        context."""
        starts = np.array([own[shared] if shared < len(own) else 0 for own, shared in self.branches])
        lengths = np.array([len(own) - shared for own, shared in self.branches])
        counts = np.array([len(ranges) for ranges in self._contexts])
        return np.stack([starts, lengths, np.cumsum(counts) - counts, counts], axis=1).astype(np.int64)

    @cached_property
    def ranges(self) -> np.ndarray:
        """`[R, 2]`: first column and length of the ranges of all contexts."""
        return np.concatenate([*self._contexts, np.zeros((1, 2), dtype=np.int64)])

    @cached_property
    def longest_branch(self) -> int:
        """Number of tokens of the longest branch."""
        return max(map(len, self._columns))

    @cached_property
    def columns(self) -> torch.Tensor:
        """`[S, M]`: column of each token of each branch, 0 after the branch's end."""
        columns_SM = np.zeros((len(self._columns), self.longest_branch), dtype=np.int64)
        for row_M, own in zip(columns_SM, self._columns, strict=True):
            row_M[: len(own)] = own
        return torch.from_numpy(columns_SM).to(self.device)

    @cached_property
    def owners(self) -> torch.Tensor:
        """`[L]`: for each column, the index of its token in `[S, M]` flattened (one of them, if branches share it)."""
        owners_L, longest = np.zeros(self.num_columns, dtype=np.int64), self.columns.shape[1]
        for index, own in enumerate(self._columns):
            owners_L[own] = index * longest + np.arange(len(own))
        return torch.from_numpy(owners_L).to(self.device)

    @cached_property
    def _contexts(self) -> list[np.ndarray]:
        return [_ranges(own[:shared]) for own, shared in self.branches]

    @property
    def branches(self) -> Iterator[tuple[np.ndarray, int]]:
        """Columns of each branch's tokens, and number of its tokens before the tail."""
        return zip(self._columns, self._shared, strict=True)


def _ranges(columns: np.ndarray) -> np.ndarray:
    """Return `[R, 2]`: first column and length of each run of neighbouring columns."""
    if not len(columns):
        return np.zeros((0, 2), dtype=np.int64)
    starts = np.concatenate([[0], np.flatnonzero(np.diff(columns) != 1) + 1])
    return np.stack([columns[starts], np.diff(np.append(starts, len(columns)))], axis=1)
