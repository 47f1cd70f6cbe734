"""Sampling on CUDA: two kernels read the logits once, and the draws come back in one copy (Triton).

The first kernel reduces each block of the vocabulary to a few numbers, the second draws from these numbers and then
within one block. A draw is the inverse CDF at the same uniform number as in `sampling.py`.
"""

# pyright: reportIndexIssue=false

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]

BLOCK = 2048
"""Tokens of the vocabulary per program: few enough for registers, and so many that `_draw` reads few blocks."""
WARPS = 4
"""Warps per program of both kernels: 16 tokens of a block for each thread."""
STATS = 5
"""Numbers per block: maximum, sum of weights, sum of weights times logits, sum of weights at the row's temperature (all
relative to the block's maximum), and the first token that has the maximum."""
DRAWN = 3
"""Numbers per row: token, log-prob, entropy."""


def draw(logits_NV: torch.Tensor, uniforms_temperatures_N2: torch.Tensor) -> torch.Tensor:
    """Return token, log-prob and entropy `[N, 3]` in float64 of each row.

    Rows of temperature 0 are greedy, and their log-probs are those at temperature 1. The entropy is NaN for a row whose
    logits are not all finite.
    """
    assert logits_NV.stride(1) == 1 and uniforms_temperatures_N2.is_contiguous()
    rows, size = logits_NV.shape
    blocks = triton.cdiv(size, BLOCK)
    stats_NB5 = torch.empty(rows, blocks, STATS, dtype=torch.float32, device=logits_NV.device)
    drawn_N3 = torch.empty(rows, DRAWN, dtype=torch.float64, device=logits_NV.device)
    _reduce[(rows, blocks)](
        logits_NV,
        uniforms_temperatures_N2,
        stats_NB5,
        size,
        logits_NV.stride(0),
        blocks,
        BLOCK=BLOCK,
        STATS=STATS,
        num_warps=WARPS,
    )
    _draw[(rows,)](
        logits_NV,
        uniforms_temperatures_N2,
        stats_NB5,
        drawn_N3,
        size,
        logits_NV.stride(0),
        blocks,
        PADDED_BLOCKS=triton.next_power_of_2(blocks),
        BLOCK=BLOCK,
        STATS=STATS,
        DRAWN=DRAWN,
        num_warps=WARPS,
    )
    return drawn_N3


@triton.jit
def _reduce(
    logits_ptr,
    uniforms_temperatures_ptr,
    stats_ptr,
    size,
    stride,
    blocks,
    BLOCK: tl.constexpr,
    STATS: tl.constexpr,
):
    """Reduce one block of one row to the numbers that `STATS` lists. `size` is the size of the vocabulary, `stride` the
    number of elements from one row of logits to the next."""
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    token = block * BLOCK + tl.arange(0, BLOCK)
    real = token < size
    x = tl.load(logits_ptr + row * stride + token, mask=real, other=float("-inf")).to(tl.float32)
    is_finite = (tl.abs(x) < float("inf")) | (token >= size)
    temperature = tl.load(uniforms_temperatures_ptr + row * 2 + 1).to(tl.float32)
    highest = tl.max(x, 0)
    first = tl.min(tl.where(x == highest, token, size), 0)
    shifted = tl.where(real, x - highest, 0.0)
    weight = tl.where(real, tl.exp(shifted), 0.0)
    tempered = tl.where(real, tl.exp(shifted / tl.where(temperature == 0.0, 1.0, temperature)), 0.0)
    ptr = stats_ptr + (row * blocks + block) * STATS
    tl.store(ptr, highest)
    tl.store(ptr + 1, tl.sum(weight, 0))
    # NaN if a logit is not finite, whatever its weight.
    tl.store(ptr + 2, tl.sum(tl.where(is_finite, weight * shifted, float("nan")), 0))
    tl.store(ptr + 3, tl.sum(tempered, 0))
    tl.store(ptr + 4, first.to(tl.float32))


@triton.jit
def _draw(
    logits_ptr,
    uniforms_temperatures_ptr,
    stats_ptr,
    drawn_ptr,
    size,
    stride,
    blocks,
    PADDED_BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr,
    STATS: tl.constexpr,
    DRAWN: tl.constexpr,
):
    """Draw one row's token: first its block, from the numbers of all blocks, then the token in the block."""
    row = tl.program_id(0).to(tl.int64)
    uniform = tl.load(uniforms_temperatures_ptr + row * 2)
    temperature = tl.load(uniforms_temperatures_ptr + row * 2 + 1).to(tl.float32)
    divisor = tl.where(temperature == 0.0, 1.0, temperature)
    block = tl.arange(0, PADDED_BLOCKS)
    is_block = block < blocks
    ptr = stats_ptr + (row * blocks + block) * STATS
    highest = tl.load(ptr, mask=is_block, other=float("-inf"))
    weight = tl.load(ptr + 1, mask=is_block, other=0.0)
    moment = tl.load(ptr + 2, mask=is_block, other=0.0)
    tempered = tl.load(ptr + 3, mask=is_block, other=0.0)
    first = tl.load(ptr + 4, mask=is_block, other=0.0)
    top = tl.max(highest, 0)
    below = tl.where(is_block, highest - top, 0.0)
    rescale = tl.exp(below)
    total = tl.sum(weight * rescale, 0)
    # A block so far below the maximum that its weight is 0 would give 0 x inf.
    row_moment = tl.where(rescale == 0.0, tl.where(moment == moment, 0.0, moment), rescale * (moment + below * weight))
    log_total = tl.log(total)
    entropy = log_total - tl.sum(row_moment, 0) / total

    until = tl.cumsum((tempered * tl.exp(below / divisor)).to(tl.float64), 0)
    whole = tl.max(until, 0)
    target = uniform * whole
    chosen = tl.minimum(tl.sum((is_block & (until <= target)).to(tl.int32), 0), blocks - 1)
    before = tl.max(tl.where(block < chosen, until, 0.0), 0)
    token = chosen * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits_ptr + row * stride + token, mask=token < size, other=float("-inf")).to(tl.float32)
    shares = tl.where(token < size, tl.exp((x - top) / divisor), 0.0)
    reached = before + tl.cumsum(shares.to(tl.float64), 0)
    offset = tl.sum((reached <= target).to(tl.int32), 0)
    # Rounding may place the target just above the block's sum. Then take the block's last token of positive weight.
    last = tl.max(tl.where(shares > 0.0, tl.arange(0, BLOCK), 0), 0)
    drawn = chosen * BLOCK + tl.minimum(offset, last)
    best = tl.min(tl.where(is_block & (highest == top), first, size), 0).to(tl.int32)
    drawn = tl.minimum(tl.where(temperature == 0.0, best, drawn), size - 1)
    drawn_logit = tl.load(logits_ptr + row * stride + drawn).to(tl.float32)
    log_whole = tl.where(temperature == 0.0, log_total, tl.log(whole.to(tl.float32)))
    tl.store(drawn_ptr + row * DRAWN, drawn.to(tl.float64))
    tl.store(drawn_ptr + row * DRAWN + 1, ((drawn_logit - top) / divisor - log_whole).to(tl.float64))
    tl.store(drawn_ptr + row * DRAWN + 2, entropy.to(tl.float64))
