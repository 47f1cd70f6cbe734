"""Repetition of the rows of a tensor, with a gradient that adds as few rows as possible.

The gradient of `index_select` adds all rows one by one, although most columns of a packed row occur once.
"""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from quartet.train.packing.segments import Repeats


def repeated(x: torch.Tensor, repeats: Repeats) -> torch.Tensor:
    """Return `[X, ...]` for x `[L, ...]`: its rows at `repeats.columns_X`."""
    return _Repeat.apply(x, *repeats)


class _Repeat(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        columns_X: torch.Tensor,
        firsts_L: torch.Tensor,
        others_E: torch.Tensor,
        columns_E: torch.Tensor,
    ) -> torch.Tensor:
        ctx.save_for_backward(firsts_L, others_E, columns_E)
        return x.index_select(0, columns_X)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        firsts_L, others_E, columns_E = ctx.saved_tensors
        summed = gradient.index_select(0, firsts_L).index_add(0, columns_E, gradient.index_select(0, others_E))
        return summed, None, None, None, None
