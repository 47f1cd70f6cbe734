"""Sampling of one token per row from logits, with its log-prob under the distribution that it was drawn from.

A draw depends only on the row's logits, the request's seed and the token's position: a counter-based generator gives a
uniform number, and the inverse CDF over the vocabulary maps this number to a token. A request therefore samples the
same tokens alone and in a batch.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from quartet.engine.cuda.support import kernels_run
from quartet.engine.truncation import shape, without
from quartet.types import Sampling

BLOCK_TOKENS = 64


class Sampled(NamedTuple):
    """Draws: one token per row."""

    token_ids: list[int]
    logprobs: list[float]
    """Log-probs in nats under the distribution that the token was drawn from. For greedy rows: under the distribution
    at temperature 1."""
    entropies: list[float]
    """Entropies in nats of the full distribution at temperature 1, as the trainer computes them."""
    finite: list[bool]
    """False for a row whose logits contain NaN or infinity; its token is then meaningless."""


def sample(
    logits_NV: torch.Tensor,
    samplings: list[Sampling],
    positions_N: list[int],
    forbidden: Mapping[int, list[int]] = {},
) -> Sampled:
    """Draw one token per row. `positions_N` are the sequence positions of the new tokens.

    `forbidden` maps rows to tokens that must not be drawn.
    """
    if logits_NV.is_cuda and _is_simple(samplings, forbidden) and kernels_run(logits_NV.device, logits_NV.dtype):
        drawn_N3 = _drawn_by_kernel(logits_NV, samplings, positions_N)
    else:
        drawn_N3 = _drawn(logits_NV, samplings, positions_N, forbidden)
    tokens, logprobs, entropies = zip(*drawn_N3.tolist(), strict=True)  # waits for the device, once
    return Sampled(list(map(int, tokens)), list(logprobs), list(entropies), list(map(math.isfinite, entropies)))


def _is_simple(samplings: list[Sampling], forbidden: Mapping[int, list[int]]) -> bool:
    """Return whether only temperatures change the distributions."""
    return not forbidden and not any(sampling.top_k or sampling.top_p < 1 for sampling in samplings)


def _drawn_by_kernel(logits_NV: torch.Tensor, samplings: list[Sampling], positions_N: list[int]) -> torch.Tensor:
    from quartet.engine.cuda.draw import draw

    uniforms_N = uniform([sampling.seed for sampling in samplings], positions_N)
    numbers_N2 = torch.from_numpy(np.stack([uniforms_N, [sampling.temperature for sampling in samplings]], axis=1))
    with torch.cuda.device(logits_NV.device):
        # Pinned, so that the copy does not wait for the forward pass, which still runs.
        return draw(logits_NV, numbers_N2.pin_memory().to(logits_NV.device, non_blocking=True))


def _drawn(
    logits_NV: torch.Tensor, samplings: list[Sampling], positions_N: list[int], forbidden: Mapping[int, list[int]]
) -> torch.Tensor:
    """Return token, log-prob and entropy `[N, 3]` in float64 of each row."""
    shifted_NV, weights_NV, entropies_N = _weights(logits_NV.float())
    if forbidden:
        shifted_NV, weights_NV, _ = _weights(without(logits_NV.float(), forbidden))
    special = [row for row, s in enumerate(samplings) if s.temperature != 1 or s.top_p < 1 or s.top_k]
    # Greedy rows keep the full distribution, because their log-probs are reported at temperature 1.
    greedy = [row for row in special if samplings[row].temperature == 0]
    if shaped := [row for row in special if samplings[row].temperature != 0]:
        weights_NV[shaped] = shape(shifted_NV[shaped], [samplings[row] for row in shaped])
    if len(greedy) == len(samplings):
        tokens_N = weights_NV.argmax(dim=-1)
    else:
        uniforms_N = torch.from_numpy(uniform([s.seed for s in samplings], positions_N)).to(weights_NV.device)
        tokens_N = inverse_cdf(weights_NV, uniforms_N)
        if greedy:
            tokens_N[greedy] = weights_NV[greedy].argmax(dim=-1)
    logprobs_N = (weights_NV.gather(-1, tokens_N.unsqueeze(-1)).squeeze(-1) / weights_NV.sum(dim=-1)).log_()
    return torch.stack([tokens_N.double(), logprobs_N.double(), entropies_N.double()], dim=1)


def _weights(logits_NV: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return, for logits x: x - max(x) `[N, V]`, the weights w = exp(x - max(x)) `[N, V]`, and entropies `[N]` in nats.

    With W the sum of w, the entropy is log W - sum(w (x - max(x))) / W. It is NaN for a row whose logits are not all
    finite, since x - max(x) is then NaN or -inf, and 0 x -inf is NaN.
    """
    shifted_NV = logits_NV - logits_NV.amax(dim=-1, keepdim=True)
    weights_NV = shifted_NV.exp()
    total_N = weights_NV.sum(dim=-1)
    entropies_N = total_N.log() - torch.linalg.vecdot(weights_NV, shifted_NV) / total_N
    return shifted_NV, weights_NV, entropies_N


def inverse_cdf(weights_NV: torch.Tensor, uniforms_N: torch.Tensor) -> torch.Tensor:
    """Return the first token whose cumulative weight exceeds the uniform number in [0, 1) times the total weight.

    The weight of the returned token is above 0. The search has two steps, first the block of tokens, then the token in
    the block, so that the pass over the whole vocabulary is a plain sum.
    """
    rows, size = weights_NV.shape
    padded_NV = F.pad(weights_NV, (0, -size % BLOCK_TOKENS))
    blocks_NBC = padded_NV.view(rows, -1, BLOCK_TOKENS)
    until_NB = blocks_NBC.sum(dim=-1, dtype=torch.float64).cumsum(dim=-1)
    targets_N1 = (uniforms_N * until_NB[:, -1]).unsqueeze(-1)
    block_N1 = torch.searchsorted(until_NB, targets_N1, right=True).clamp_(max=until_NB.shape[1] - 1)
    inside_NC = blocks_NBC[torch.arange(rows, device=weights_NV.device), block_N1[:, 0]].double()
    before_N1 = until_NB.gather(1, block_N1) - inside_NC.sum(dim=-1, keepdim=True)
    cumulative_NC = before_N1 + inside_NC.cumsum(dim=-1)
    offset_N1 = torch.searchsorted(cumulative_NC, targets_N1, right=True)
    # Rounding may place the target just above the block's sum. Then take the block's last token of positive weight.
    last_N1 = (BLOCK_TOKENS - 1 - inside_NC.flip(-1).gt(0).int().argmax(dim=-1, keepdim=True)).clamp_(min=0)
    return (block_N1 * BLOCK_TOKENS + torch.minimum(offset_N1, last_N1)).squeeze(-1).clamp_(max=size - 1)


def uniform(seeds: list[int], positions: list[int]) -> np.ndarray:
    """Return a float64 in [0, 1) for each (seed, position): 53 bits of a splitmix64 hash of both."""
    streams = _splitmix64(np.array([seed & 0xFFFF_FFFF_FFFF_FFFF for seed in seeds], dtype=np.uint64))
    mixed = _splitmix64(streams + np.array(positions, dtype=np.uint64) * _GOLDEN)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


_GOLDEN = np.uint64(0x9E37_79B9_7F4A_7C15)


def _splitmix64(counters: np.ndarray) -> np.ndarray:
    """Apply one step of splitmix64 (Steele, Lea, Flood 2014) to each counter, modulo 2^64."""
    mixed = counters + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return mixed ^ (mixed >> np.uint64(31))
