"""Decode attention on CUDA: one new token per row, over the row's keys and values (Triton).

Each program reads a part of one row for one key-value head once, for all query heads that share it (flash-decoding, Dao
et al. 2023). Nothing behind a row's last token is read, and no mask is stored. The parts of a row are then combined
with their softmax weights.
"""

# pyright: reportIndexIssue=false

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]

from quartet.engine.cuda.inputs import DecodeInputs

TILE_BYTES = 16384
"""Most bytes of keys, and of values, that a program reads at once; on an H100 the tiles of two programs fit into the
shared memory of a multiprocessor."""
STAGES = 3
"""Pairs of tiles that are in flight at once, so that memory is read while scores are computed."""
TILES_PER_BLOCK = 8
"""Tiles that fit into the shared memory of one program: `STAGES` pairs, and as much as two tiles for queries, weights
and what the compiler adds."""
MIN_BLOCK_TOKENS, MAX_BLOCK_TOKENS = 16, 128
"""Tokens in a tile: at least the smallest side of a matrix product of Triton, and so few that the scores of a tile stay
in registers for small heads too."""
MAX_PARTS = 32
"""Most parts of a row, so that `_combine` holds all parts of a row in registers."""
LOG2_E = 1.4426950408889634
"""log2(e): the softmax is computed with powers of two."""
PROGRAMS_PER_MULTIPROCESSOR = 3
"""Programs per multiprocessor from which on rows are not divided: enough to keep the memory busy."""


class DecodeAttention:
    """Attention of one new token per row. H: query heads, K: key-value heads, d: head_dim."""

    def __init__(
        self, heads: int, kv_heads: int, head_dim: int, multiprocessors: int, shared_memory_bytes: int
    ) -> None:
        """`shared_memory_bytes` is the most shared memory that a program can have on the device."""
        self._heads, self._kv_heads, self._head_dim = heads, kv_heads, head_dim
        self._programs = PROGRAMS_PER_MULTIPROCESSOR * multiprocessors
        self._shared_memory_bytes = shared_memory_bytes

    def block_tokens(self, itemsize: int) -> int:
        """Return the number of tokens in a tile, a power of two; `itemsize` is the size of an element in bytes."""
        tile_bytes = min(TILE_BYTES, self._shared_memory_bytes // TILES_PER_BLOCK)
        tokens = max(MIN_BLOCK_TOKENS, min(MAX_BLOCK_TOKENS, tile_bytes // (self._head_dim * itemsize)))
        return 1 << (tokens.bit_length() - 1)

    def num_parts(self, rows: int) -> int:
        """Return the number of parts of each row: a power of two that follows from the number of rows alone."""
        wanted = -(-self._programs // (rows * self._kv_heads))
        return min(triton.next_power_of_2(wanted), MAX_PARTS)

    def __call__(self, q_NHd: torch.Tensor, inputs: DecodeInputs, layer: int) -> torch.Tensor:
        """Return the attention output `[N, H d]`, 0 for padding. The rows already contain the new tokens."""
        rows, parts = len(q_NHd), self.num_parts(len(q_NHd))
        out_NE = torch.empty(rows, self._heads * self._head_dim, dtype=q_NHd.dtype, device=q_NHd.device)
        sums_NHPd = q_NHd.new_empty(rows, self._heads, parts, self._head_dim, dtype=torch.float32)
        stats_NHP2 = q_NHd.new_empty(rows, self._heads, parts, 2, dtype=torch.float32)
        group = self._heads // self._kv_heads
        _attend_part[(rows, self._kv_heads, parts)](
            q_NHd,
            inputs.table,
            inputs.rows_N,
            inputs.positions_N,
            out_NE,
            sums_NHPd,
            stats_NHP2,
            layer,
            self._head_dim**-0.5 * LOG2_E,
            KV_HEADS=self._kv_heads,
            GROUP=group,
            PADDED_GROUP=max(16, triton.next_power_of_2(group)),
            HEAD_DIM=self._head_dim,
            BLOCK=self.block_tokens(q_NHd.element_size()),
            PARTS=parts,
            num_warps=4,
            num_stages=STAGES,
        )
        if parts > 1:
            _combine[(rows, self._heads)](
                sums_NHPd, stats_NHP2, out_NE, HEADS=self._heads, HEAD_DIM=self._head_dim, PARTS=parts, num_warps=2
            )
        return out_NE


@triton.jit(do_not_specialize=["layer"])
def _attend_part(
    q_ptr,
    table_ptr,
    rows_ptr,
    positions_ptr,
    out_ptr,
    sums_ptr,
    stats_ptr,
    layer,
    scale,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    PADDED_GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Attend to one part of one row, for the query heads of one key-value head. `scale` has the factor log2(e)."""
    token, kv_head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(positions_ptr + token).to(tl.int32) + 1
    part_tokens = tl.cdiv(tl.cdiv(length, BLOCK), PARTS) * BLOCK
    start = part * part_tokens
    end = tl.minimum(start + part_tokens, length)

    pointer = tl.pointer_type(q_ptr.dtype.element_ty)
    offset = layer * tl.load(table_ptr + 2) + tl.load(rows_ptr + token) * tl.load(table_ptr + 3)
    offset += kv_head * tl.load(table_ptr + 4)
    keys_ptr = tl.load(table_ptr).to(pointer) + offset
    values_ptr = tl.load(table_ptr + 1).to(pointer) + offset

    group, dim, block = tl.arange(0, PADDED_GROUP), tl.arange(0, HEAD_DIM), tl.arange(0, BLOCK)
    heads = token * KV_HEADS * GROUP + kv_head * GROUP + group
    is_head = group < GROUP
    at_head = heads[:, None] * HEAD_DIM + dim[None, :]
    q = tl.load(q_ptr + at_head, mask=is_head[:, None], other=0.0)
    highest = tl.full([PADDED_GROUP], float("-inf"), tl.float32)
    total = tl.zeros([PADDED_GROUP], tl.float32)
    summed = tl.zeros([PADDED_GROUP, HEAD_DIM], tl.float32)
    for first in range(start, end, BLOCK):
        place = first + block
        # The hints state what the compiler cannot know of a pointer that it reads from memory: vectors are aligned.
        k_ptrs = tl.multiple_of(keys_ptr + place[None, :] * HEAD_DIM + dim[:, None], (16, 1))
        k = tl.load(k_ptrs, mask=place[None, :] < end, other=0.0)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        scores = tl.where(place[None, :] < end, scores, float("-inf"))
        new_highest = tl.maximum(highest, tl.max(scores, 1))
        rescale = tl.exp2(highest - new_highest)
        weights = tl.exp2(scores - new_highest[:, None])
        v_ptrs = tl.multiple_of(values_ptr + place[:, None] * HEAD_DIM + dim[None, :], (1, 16))
        v = tl.load(v_ptrs, mask=place[:, None] < end, other=0.0)
        total = total * rescale + tl.sum(weights, 1)
        summed = summed * rescale[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        highest = new_highest

    if PARTS == 1:
        mean = summed / tl.where(total == 0.0, 1.0, total)[:, None]
        tl.store(out_ptr + at_head, mean.to(out_ptr.dtype.element_ty), mask=is_head[:, None])
    else:
        at_part = heads * PARTS + part
        tl.store(sums_ptr + at_part[:, None] * HEAD_DIM + dim[None, :], summed, mask=is_head[:, None])
        tl.store(stats_ptr + at_part * 2, highest, mask=is_head)
        tl.store(stats_ptr + at_part * 2 + 1, total, mask=is_head)


@triton.jit
def _combine(sums_ptr, stats_ptr, out_ptr, HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, PARTS: tl.constexpr):
    """Combine the parts of one row for one query head. A part without tokens has weight 0."""
    head = tl.program_id(0) * HEADS + tl.program_id(1)
    part, dim = tl.arange(0, PARTS), tl.arange(0, HEAD_DIM)
    highest = tl.load(stats_ptr + (head * PARTS + part) * 2)
    total = tl.load(stats_ptr + (head * PARTS + part) * 2 + 1)
    top = tl.max(highest, 0)
    rescale = tl.exp2(highest - tl.where(top == float("-inf"), 0.0, top))
    summed = tl.load(sums_ptr + (head * PARTS + part)[:, None] * HEAD_DIM + dim[None, :])
    whole = tl.sum(total * rescale, 0)
    mean = tl.sum(summed * rescale[:, None], 0) / tl.where(whole == 0.0, 1.0, whole)
    tl.store(out_ptr + head * HEAD_DIM + dim, mean.to(out_ptr.dtype.element_ty))
