"""Matrix products with weights, by the faster of two libraries in PyTorch.

In float32 on a CPU, PyTorch calls MKL, which uses half of the vector width on AMD processors. oneDNN, which PyTorch
calls for bfloat16, uses the whole width: 210 instead of 110 GFLOP/s on one core of Zen 5 (512 tokens, 256 to 1024
channels).
"""

import platform
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

_one_dnn: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
"""oneDNN's operator for x W^T + b, which `torch.compile` uses too; None if this PyTorch has none."""


def _is_amd() -> bool:
    cpuinfo = Path("/proc/cpuinfo")
    return "AuthenticAMD" in (cpuinfo.read_text() if cpuinfo.exists() else platform.processor())


HAS_BOTH_WITH_AVX512: bool = (
    torch.backends.cpu.get_cpu_capability() == "AVX512"
    and torch.backends.mkl.is_available()
    and torch.backends.mkldnn.is_available()
    and _one_dnn is not None
)
"""True on a processor with AVX-512 if PyTorch has both libraries."""
ONE_DNN_IS_FASTER = HAS_BOTH_WITH_AVX512 and _is_amd()


def linear(x_TD: torch.Tensor, weight_ED: torch.Tensor, bias_E: torch.Tensor | None = None) -> torch.Tensor:
    """Return x W^T + b `[T, E]`; x may have any number of leading dimensions instead of T.

    The weight must be contiguous, or the transpose of a contiguous matrix, since oneDNN is a thousand times slower
    otherwise. The product by oneDNN has no gradient; `quartet.train.linear` adds it.
    """
    if by_one_dnn(x_TD, weight_ED):
        return _one_dnn(x_TD, weight_ED, bias_E, "none", [], "")
    return F.linear(x_TD, weight_ED, bias_E)


def by_one_dnn(x_TD: torch.Tensor, weight_ED: torch.Tensor) -> bool:
    """Return whether oneDNN computes the product, because it is faster and supports the arguments.

    It does not support empty tensors. Shapes that do not match are left to PyTorch, which reports them.
    """
    return (
        ONE_DNN_IS_FASTER
        and x_TD.dtype == weight_ED.dtype == torch.float32
        and x_TD.device.type == "cpu"
        and x_TD.numel() > 0
        and x_TD.shape[-1] == weight_ED.shape[1]
        and not torch.is_autocast_enabled("cpu")
    )
