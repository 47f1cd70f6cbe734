"""Operations of a decoder layer between its matrix products on CUDA, one kernel each (Triton).

They compute in float32 and round once, at the end. `token_ops.py` has the same operations in PyTorch.
"""

# pyright: reportIndexIssue=false

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]

from quartet.engine.cuda.inputs import DecodeInputs
from quartet.engine.token_ops import HeadNorms

GATE_BLOCK = 1024
"""Elements of the MLP per program: 8 for each of 128 threads, and enough programs to occupy the GPU with few rows."""
GATE_WARPS = 4


def normed(x_ND: torch.Tensor, weight_D: torch.Tensor, eps: float) -> torch.Tensor:
    """Return RMSNorm of `x_ND`."""
    out_ND = torch.empty_like(x_ND)
    tokens, size = x_ND.shape
    block = triton.next_power_of_2(size)
    _norm[(tokens,)](x_ND, weight_D, out_ND, size, eps, BLOCK=block, num_warps=min(max(block // 512, 1), 8))
    return out_ND


def placed(
    projected_NE: torch.Tensor,
    norms: HeadNorms | None,
    tables_Lh: tuple[torch.Tensor, torch.Tensor],
    inputs: DecodeInputs,
    layer: int,
    kv_heads: int,
    eps: float,
) -> torch.Tensor:
    """Split projections `[N, (H + 2 K) d]`: return queries `[N, H, d]`, write keys and values to their rows.

    `tables_Lh` are cosines and sines of the rotary embedding by position, with h = d / 2.
    """
    (tokens, width), (cos_Lh, sin_Lh) = projected_NE.shape, tables_Lh
    half = cos_Lh.shape[1]
    heads = width // (2 * half) - 2 * kv_heads
    q_NHd = projected_NE.new_empty(tokens, heads, 2 * half)
    q_norm, k_norm = (norms.q_d, norms.k_d) if norms else (projected_NE, projected_NE)
    _place[(tokens, heads + 2 * kv_heads)](
        projected_NE,
        q_norm,
        k_norm,
        cos_Lh,
        sin_Lh,
        inputs.table,
        inputs.rows_N,
        inputs.positions_N,
        q_NHd,
        layer,
        eps,
        HEADS=heads,
        KV_HEADS=kv_heads,
        HALF=half,
        NORMED=norms is not None,
        num_warps=1,
    )
    return q_NHd


def gated(gate_up_NE: torch.Tensor) -> torch.Tensor:
    """Return silu(gate) * up `[N, M]` for `[gate, up]` `[N, 2 M]`."""
    tokens, size = len(gate_up_NE), gate_up_NE.shape[1] // 2
    out_NM = gate_up_NE.new_empty(tokens, size)
    _gate[(tokens, triton.cdiv(size, GATE_BLOCK))](gate_up_NE, out_NM, size, BLOCK=GATE_BLOCK, num_warps=GATE_WARPS)
    return out_NM


@triton.jit
def _norm(x_ptr, weight_ptr, out_ptr, size, eps, BLOCK: tl.constexpr):
    """Write RMSNorm of one token, of `size` elements."""
    token, place = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + token * size + place, mask=place < size, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + place, mask=place < size, other=0.0).to(tl.float32)
    normed = x * tl.rsqrt(tl.sum(x * x, 0) / size + eps) * weight
    tl.store(out_ptr + token * size + place, normed.to(out_ptr.dtype.element_ty), mask=place < size)


@triton.jit(do_not_specialize=["layer"])
def _place(
    projected_ptr,
    q_norm_ptr,
    k_norm_ptr,
    cos_ptr,
    sin_ptr,
    table_ptr,
    rows_ptr,
    positions_ptr,
    q_ptr,
    layer,
    eps,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HALF: tl.constexpr,
    NORMED: tl.constexpr,
):
    """Place one head of one token: the heads of queries come first, then those of keys, then those of values.

    The norms' weights are read only if NORMED. Table, rows and positions are those of `DecodeInputs`; `layer` selects
    the layer in the buffers of keys and values. A negative position is padding, and is written to no row.
    """
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    position = tl.load(positions_ptr + token)
    place = tl.arange(0, HALF)
    dtype = q_ptr.dtype.element_ty
    from_ptr = projected_ptr + (token * (HEADS + 2 * KV_HEADS) + head) * (2 * HALF) + place
    low, high = tl.load(from_ptr).to(tl.float32), tl.load(from_ptr + HALF).to(tl.float32)
    if head < HEADS + KV_HEADS:
        if NORMED:
            norm_ptr = (q_norm_ptr if head < HEADS else k_norm_ptr) + place
            factor = tl.rsqrt((tl.sum(low * low, 0) + tl.sum(high * high, 0)) / (2 * HALF) + eps)
            low = low * factor * tl.load(norm_ptr).to(tl.float32)
            high = high * factor * tl.load(norm_ptr + HALF).to(tl.float32)
        angle = tl.maximum(position, 0) * HALF + place
        cos, sin = tl.load(cos_ptr + angle).to(tl.float32), tl.load(sin_ptr + angle).to(tl.float32)
        low, high = low * cos - high * sin, high * cos + low * sin
    if head < HEADS:
        to_ptr = q_ptr + (token * HEADS + head) * (2 * HALF) + place
        tl.store(to_ptr, low.to(dtype))
        tl.store(to_ptr + HALF, high.to(dtype))
    elif position >= 0:
        is_value = head >= HEADS + KV_HEADS
        kv_head = tl.where(is_value, head - HEADS - KV_HEADS, head - HEADS)
        offset = layer * tl.load(table_ptr + 2) + tl.load(rows_ptr + token) * tl.load(table_ptr + 3)
        offset += kv_head * tl.load(table_ptr + 4) + position * (2 * HALF)
        to_ptr = tl.load(table_ptr + is_value.to(tl.int32)).to(tl.pointer_type(dtype)) + offset + place
        tl.store(to_ptr, low.to(dtype))
        tl.store(to_ptr + HALF, high.to(dtype))


@triton.jit
def _gate(gate_up_ptr, out_ptr, size, BLOCK: tl.constexpr):
    """Write silu(gate) * up of one block of one token; `size` is the size of the MLP."""
    token, place = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(gate_up_ptr + token * 2 * size + place, mask=place < size, other=0.0).to(tl.float32)
    up = tl.load(gate_up_ptr + token * 2 * size + size + place, mask=place < size, other=0.0).to(tl.float32)
    gated = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out_ptr + token * size + place, gated.to(out_ptr.dtype.element_ty), mask=place < size)
