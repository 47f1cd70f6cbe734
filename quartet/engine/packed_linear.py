"""Products with weights that stay the same for many passes: oneDNN keeps them in the order in which it reads them.

Without that it brings a matrix into this order for every product, which for ten tokens takes as long as the product
itself: on one core of Zen 4, ten tokens through the matrices of a model of 3.4 M parameters take 1.2 instead of 2.4 ms,
64 tokens 4.6 instead of 5.8 (taken by hand).
"""

from typing import Any

import torch
import torch.nn.functional as F

from quartet.policy.linear import ONE_DNN_IS_FASTER

_one_dnn: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
_reorder: Any = getattr(torch.ops.mkldnn, "_reorder_linear_weight", None)


class PackedLinear:
    """x W^T + b of tokens `[T, D]` of the weight's type, T > 0, with no gradient. Where oneDNN computes, a packed copy
    of W takes as much memory again."""

    def __init__(self, weight_ED: torch.Tensor, bias_E: torch.Tensor | None = None) -> None:
        self._weight_ED, self._bias_E = weight_ED, bias_E
        self._packed: torch.Tensor | None = None
        self.pack()

    def pack(self) -> None:
        """The weights have changed in place."""
        self._packed = None  # before there is a second one
        if _packs(self._weight_ED):
            self._packed = _reorder(self._weight_ED.detach())

    def __call__(self, x_TD: torch.Tensor) -> torch.Tensor:
        if self._packed is not None:
            return _one_dnn(x_TD, self._packed, self._bias_E, "none", [], "")
        return F.linear(x_TD, self._weight_ED, self._bias_E)

    def added_to(self, residual_TE: torch.Tensor, x_TD: torch.Tensor) -> torch.Tensor:
        """`[T, E]`: residual + x W^T + b, in one pass over the result."""
        if self._packed is not None:
            return _one_dnn.binary(x_TD, residual_TE, self._packed, self._bias_E, "add")
        total_TE = torch.addmm(residual_TE, x_TD, self._weight_ED.t())
        return total_TE if self._bias_E is None else total_TE.add_(self._bias_E)


def _packs(weight_ED: torch.Tensor) -> bool:
    """Whether oneDNN computes with this type here, and faster than what PyTorch calls otherwise."""
    if weight_ED.device.type != "cpu" or _one_dnn is None or _reorder is None:
        return False
    if weight_ED.dtype == torch.float32:
        return ONE_DNN_IS_FASTER
    return weight_ED.dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
