"""Attention over a packed row by FlashAttention, on a GPU and in bfloat16.

The queries are the row itself, since each token lies in the tail of one branch. The keys of a branch are all its
tokens, so only keys and values of shared prefixes are repeated, and no score is computed twice.
"""

from typing import Any

import torch

from quartet.train.gpu.repeat import repeated
from quartet.train.packing.plain_attention import require_plain
from quartet.train.packing.segments import Segments

MAX_HEAD_DIM = 256
LEAST_CAPABILITY = (8, 0)
"""Compute capability from which on GPUs run PyTorch's FlashAttention: NVIDIA's Ampere."""


def can_flash(head_dim: int, compute_dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether PyTorch's FlashAttention takes such heads on the device."""
    if device.type != "cuda" or compute_dtype != torch.bfloat16 or head_dim % 8 or head_dim > MAX_HEAD_DIM:
        return False
    return torch.cuda.get_device_capability(device) >= LEAST_CAPABILITY


def attend_flash(
    module: torch.nn.Module,
    query_1HLd: torch.Tensor,
    key_1KLd: torch.Tensor,
    value_1KLd: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    segments: Segments,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Return the attention outputs `[1, L, H, d]`. H: query heads, K: key-value heads, L: columns of the row.

    The causal mask is aligned at the ends: the last query of a tail attends to all tokens of its branch. Raises
    `ConfigError` for a model with another kind of attention.
    """
    require_plain(module, kwargs)
    q_LHd, k_LKd, v_LKd = (part[0].transpose(0, 1).bfloat16() for part in (query_1HLd, key_1KLd, value_1KLd))
    k_XKd, v_XKd = (repeated(part, segments.repeats) for part in (k_LKd, v_LKd))
    output_LHd, *_ = torch.ops.aten._flash_attention_forward(
        q_LHd,
        k_XKd,
        v_XKd,
        segments.tail_ends,
        segments.branch_ends,
        segments.longest_tail,
        segments.longest_branch,
        0.0,
        True,
        False,
        scale=scaling,
    )
    return output_LHd.unsqueeze(0), None
