"""Repetition of the rows of a tensor, with a gradient that adds as few rows as possible.

The gradient of `index_select` adds all rows one by one, although most rows of a packed batch are repeated once.
"""

from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable


class Repeat(torch.autograd.Function):
    """Autograd function x[places] `[X, ...]` for x `[L, ...]`, where every row occurs at least once.

    `firsts_L` is the place of each row's first occurrence, `others_E` are the places of all other occurrences, and
    `rows_E` the rows there.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        places_X: torch.Tensor,
        firsts_L: torch.Tensor,
        others_E: torch.Tensor,
        rows_E: torch.Tensor,
    ) -> torch.Tensor:
        ctx.save_for_backward(firsts_L, others_E, rows_E)
        return x.index_select(0, places_X)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        firsts_L, others_E, rows_E = ctx.saved_tensors
        summed = gradient.index_select(0, firsts_L).index_add(0, rows_E, gradient.index_select(0, others_E))
        return summed, None, None, None, None


def occurrences(places: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return `firsts_L`, `others_E` and `rows_E` of `Repeat` for `count` rows, all of which are among `places`."""
    _, firsts = np.unique(places, return_index=True)
    assert len(firsts) == count
    is_other = np.ones(len(places), dtype=bool)
    is_other[firsts] = False
    others = np.flatnonzero(is_other)
    return firsts, others, places[others]
