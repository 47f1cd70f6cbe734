"""Log-probs and entropies of tokens from logits of a large vocabulary, with one pass over the logits per direction.

Logits keep their data type, and sums are in float32, so the only copy in memory besides the logits is their gradient.
Shapes: T tokens, V tokens of the vocabulary. Only imported on a GPU, since PyTorch for CPUs comes without Triton.
"""

# pyright: reportIndexIssue=false

from contextlib import nullcontext
from typing import Any

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch.autograd.function import once_differentiable

BLOCK, WARPS = 4096, 8
"""Logits that a program holds at a time, and its warps: 16 logits and their sums per thread fit into registers."""
LOWEST = tl.constexpr(-3.4e38)
"""Initial maximum of a row: finite, since the difference of two infinities is NaN."""


class FusedTokenScores(torch.autograd.Function):
    """Autograd function of the log-probs of targets at the tokens' temperatures, and of the entropies at temperature
    1, both in nats, `[T]`."""

    @staticmethod
    def forward(
        ctx: Any, logits_TV: torch.Tensor, targets_T: torch.Tensor, temperatures_T: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logits_TV, temperatures_T = logits_TV.contiguous(), temperatures_T.float()
        count, size = logits_TV.shape
        logprobs_T, entropies_T = (logits_TV.new_empty(count, dtype=torch.float32) for _ in range(2))
        sums_T3 = logits_TV.new_empty(count, 3, dtype=torch.float32)
        written = (logprobs_T, entropies_T, sums_T3)
        with device_of(logits_TV):
            _score[(count,)](logits_TV, targets_T, temperatures_T, *written, size, BLOCK=BLOCK, num_warps=WARPS)
        ctx.save_for_backward(logits_TV, targets_T, temperatures_T, entropies_T, sums_T3)
        ctx.set_materialize_grads(False)
        return logprobs_T, entropies_T

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, of_logprobs_T: torch.Tensor | None, of_entropies_T: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        logits_TV, targets_T, temperatures_T, entropies_T, sums_T3 = ctx.saved_tensors
        count, size = logits_TV.shape
        given = [
            torch.zeros_like(temperatures_T) if one is None else one.contiguous()
            for one in (of_logprobs_T, of_entropies_T)
        ]
        out_TV, grid = torch.empty_like(logits_TV), (count, triton.cdiv(size, BLOCK))
        read = (*given, logits_TV, targets_T, temperatures_T, entropies_T, sums_T3)
        with_entropies = of_entropies_T is not None
        with device_of(logits_TV):
            _gradient[grid](*read, out_TV, size, WITH_ENTROPIES=with_entropies, BLOCK=BLOCK, num_warps=WARPS)
        return out_TV, None, None


def device_of(tensor: torch.Tensor) -> torch.cuda.device | nullcontext[None]:
    """Return the context in which Triton launches on the tensor's device, and not on the current one."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()  # Triton's interpreter has no device


@triton.jit
def _score(logits, targets, temperatures, logprobs, entropies, sums, size, BLOCK: tl.constexpr):
    """Compute one token. Sums are rescaled whenever a larger logit is met (online softmax)."""
    token = tl.program_id(0).to(tl.int64)
    row, columns = logits + token * size, tl.arange(0, BLOCK)
    inverse = 1.0 / tl.load(temperatures + token)
    largest = tl.full((), LOWEST, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)  # of exp(x - largest)
    moment = tl.zeros((BLOCK,), tl.float32)  # of exp(x - largest) (x - largest)
    scaled = tl.zeros((BLOCK,), tl.float32)  # of exp((x - largest) / temperature)
    for start in range(0, size, BLOCK):
        x = tl.load(row + start + columns, mask=start + columns < size, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(largest, tl.max(x, axis=0))
        fall = largest - higher
        kept = tl.exp(fall)
        shifted = tl.where(x < LOWEST, LOWEST, x - higher)  # 0 x -inf is NaN; a NaN stays one
        weights = tl.exp(shifted)
        moment = kept * (moment + fall * total) + weights * shifted
        total = kept * total + weights
        scaled = tl.exp(fall * inverse) * scaled + tl.exp(shifted * inverse)
        largest = higher
    log_scaled, whole = tl.log(tl.sum(scaled, axis=0)), tl.sum(total, axis=0)
    target = tl.load(targets + token)
    # A target outside the vocabulary gives a NaN, and so an error of the train step.
    chosen = tl.load(row + target, mask=(target >= 0) & (target < size), other=float("nan")).to(tl.float32)
    tl.store(logprobs + token, (chosen - largest) * inverse - log_scaled)
    tl.store(entropies + token, tl.log(whole) - tl.sum(moment, axis=0) / whole)
    tl.store(sums + 3 * token, largest)
    tl.store(sums + 3 * token + 1, tl.log(whole))
    tl.store(sums + 3 * token + 2, log_scaled)


@triton.jit
def _gradient(
    of_logprobs,
    of_entropies,
    logits,
    targets,
    temperatures,
    entropies,
    sums,
    out,
    size,
    WITH_ENTROPIES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute the gradient of a token's logits in one block of the vocabulary.

    With p the probabilities at temperature 1, q those at the token's temperature t, y the target and H the entropy:
    d log q(y) / dx = (1[y] - q) / t and dH / dx = -p (log p + H).
    """
    token = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < size
    inverse = 1.0 / tl.load(temperatures + token)
    x = tl.load(logits + token * size + columns, mask=inside, other=0.0).to(tl.float32)
    shifted = tl.where(x < LOWEST, LOWEST, x - tl.load(sums + 3 * token))
    q = tl.exp(shifted * inverse - tl.load(sums + 3 * token + 2))
    is_target = (columns == tl.load(targets + token)).to(tl.float32)
    slope = tl.load(of_logprobs + token) * inverse * (is_target - q)
    if WITH_ENTROPIES:
        log_p = shifted - tl.load(sums + 3 * token + 1)
        slope -= tl.load(of_entropies + token) * tl.exp(log_p) * (log_p + tl.load(entropies + token))
    tl.store(out + token * size + columns, slope.to(out.dtype.element_ty), mask=inside)
