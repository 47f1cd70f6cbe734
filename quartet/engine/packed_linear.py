"""Matrix products with weights that stay fixed for many passes: the weights are stored in oneDNN's memory layout.

Without a packed copy oneDNN reorders the matrix for every product, which for ten tokens takes as long as the product
itself. Measured on one core of Zen 4, with the matrices of a model of 3.4 M parameters: ten tokens take 1.2 instead of
2.4 ms, 64 tokens 4.6 instead of 5.8 ms. MKL, which computes float32 on Intel processors, reorders the matrix too: with
packed copies a step of SmolLM2-135M with 32 rows took 0.78, and one with 4 rows 0.65 of the time on one core of a Xeon
with AMX.
"""

from typing import Any

import torch
import torch.nn.functional as F

from quartet.policy.linear import HAS_BOTH_WITH_AVX512, ONE_DNN_IS_FASTER

_one_dnn: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
_reorder: Any = getattr(torch.ops.mkldnn, "_reorder_linear_weight", None)

CACHED_BYTES = 2 << 20
"""Size up to which a matrix stays in a core's cache; MKL is as fast with it as oneDNN with a packed copy."""


class PackedLinear:
    """Linear layer without gradient: computes x W^T + b for tokens x `[T, D]`, T > 0, of the weight's dtype.

    With oneDNN, a packed copy of W is kept in addition to W.
    """

    def __init__(self, weight_ED: torch.Tensor, bias_E: torch.Tensor | None = None) -> None:
        self._weight_ED, self._bias_E = weight_ED, bias_E
        self.packed: torch.Tensor | None = None
        """The copy in oneDNN's layout; None if oneDNN does not compute this product, or not faster."""
        self.pack()

    def pack(self) -> None:
        """Renew the packed copy after the weights have changed in place."""
        self.packed = None  # freed before the new copy is allocated
        if _packs(self._weight_ED):
            self.packed = _reorder(self._weight_ED.detach())

    def __call__(self, x_TD: torch.Tensor) -> torch.Tensor:
        if self.packed is not None:
            return _one_dnn(x_TD, self.packed, self._bias_E, "none", [], "")
        return F.linear(x_TD, self._weight_ED, self._bias_E)

    def added_to(self, residual_TE: torch.Tensor, x_TD: torch.Tensor) -> torch.Tensor:
        """Return residual + x W^T + b `[T, E]`, computed in one pass over the result."""
        if self.packed is not None:
            return _one_dnn.binary(x_TD, residual_TE, self.packed, self._bias_E, "add")
        total_TE = torch.addmm(residual_TE, x_TD, self._weight_ED.t())
        return total_TE if self._bias_E is None else total_TE.add_(self._bias_E)

    def add_into(self, residual_TE: torch.Tensor, x_TD: torch.Tensor) -> torch.Tensor:
        """Add x W^T + b to the residual `[T, E]` in place, from weights without packed copy. Return the residual."""
        assert self.packed is None, "a packed copy would not be used"
        residual_TE.addmm_(x_TD, self._weight_ED.t())
        return residual_TE if self._bias_E is None else residual_TE.add_(self._bias_E)


def _packs(weight_ED: torch.Tensor) -> bool:
    """Return whether oneDNN supports this dtype on this machine and is faster than PyTorch's default."""
    if weight_ED.device.type != "cpu" or _one_dnn is None or _reorder is None:
        return False
    if weight_ED.dtype == torch.float32:
        return ONE_DNN_IS_FASTER or (HAS_BOTH_WITH_AVX512 and weight_ED.nbytes > CACHED_BYTES)
    return weight_ED.dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
