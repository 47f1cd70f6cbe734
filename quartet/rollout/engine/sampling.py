"""Draws one token per row from logits, with the log-prob of the distribution actually drawn from.

A draw depends on nothing but the row's logits, its request's seed and the token's position: the uniform number comes
from a counter-based generator, and the token from the inverse of the cumulative distribution over the vocabulary. So a
request samples the same tokens alone or among others.
"""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from quartet.types import Sampling

BLOCK_TOKENS = 64


class Sampled(NamedTuple):
    """One draw per row; N = rows."""

    token_ids: list[int]
    logprobs: list[float]
    """Of the distribution drawn from, in nats; a greedy row reports the log-prob at temperature 1."""
    entropies: list[float]
    """Of the whole distribution at temperature 1, in nats, as the trainer computes it."""
    finite: list[bool]
    """False where the logits held NaN or infinity: that row's token means nothing."""


def sample(logits_NV: torch.Tensor, samplings: list[Sampling], positions_N: list[int]) -> Sampled:
    """Draw one token per row. `positions_N` are the positions in the sequence that the new tokens will take."""
    shifted_NV, weights_NV, entropies_N = _weights(logits_NV.float())
    finite = entropies_N.isfinite().tolist()
    greedy = [sampling.temperature == 0 for sampling in samplings]
    if any(s.temperature not in (0, 1) for s in samplings):
        temperatures_N1 = weights_NV.new_tensor([[s.temperature or 1.0] for s in samplings])
        weights_NV = (shifted_NV / temperatures_N1).exp_()
    # A greedy row keeps its whole distribution: its log-prob is the one at temperature 1.
    if any(s.top_p < 1 and not is_greedy for s, is_greedy in zip(samplings, greedy, strict=True)):
        top_p_N = [1.0 if is_greedy else s.top_p for s, is_greedy in zip(samplings, greedy, strict=True)]
        weights_NV = keep_top_p(weights_NV, weights_NV.new_tensor(top_p_N))
    uniforms_N = torch.from_numpy(uniform([s.seed for s in samplings], positions_N)).to(weights_NV.device)
    tokens_N = None if all(greedy) else inverse_cdf(weights_NV, uniforms_N)
    if any(greedy):
        best_N = weights_NV.argmax(dim=-1)
        is_greedy_N = torch.tensor(greedy, device=weights_NV.device)
        tokens_N = best_N if tokens_N is None else torch.where(is_greedy_N, best_N, tokens_N)
    assert tokens_N is not None
    logprobs_N = (weights_NV.gather(-1, tokens_N.unsqueeze(-1)).squeeze(-1) / weights_NV.sum(dim=-1)).log_()
    return Sampled(tokens_N.tolist(), logprobs_N.tolist(), entropies_N.tolist(), finite)


def _weights(logits_NV: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x - max `[N, V]` of logits x, w = exp(x - max) `[N, V]`, and entropies `[N]` in nats.

    With W the sum of w, the entropy is log W - sum(w (x - max)) / W. It is NaN for a row that is not
    finite: then x - max is NaN or -inf, and 0 x -inf is NaN.
    """
    shifted_NV = logits_NV - logits_NV.amax(dim=-1, keepdim=True)
    weights_NV = shifted_NV.exp()
    total_N = weights_NV.sum(dim=-1)
    entropies_N = total_N.log() - torch.linalg.vecdot(weights_NV, shifted_NV) / total_N
    return shifted_NV, weights_NV, entropies_N


def keep_top_p(weights_NV: torch.Tensor, top_p_N: torch.Tensor) -> torch.Tensor:
    """Keep the smallest set of most likely tokens whose mass reaches `top_p`; the weights of others become 0.

    A token is kept when the mass of the more likely ones is below `top_p` (Holtzman et al. 2020, nucleus sampling), so
    the most likely token always stays.
    """
    sorted_NV, order_NV = weights_NV.sort(dim=-1, descending=True)
    mass_NV = sorted_NV.cumsum(dim=-1)
    dropped_NV = mass_NV - sorted_NV >= top_p_N.unsqueeze(-1) * mass_NV[:, -1:]
    dropped_NV &= top_p_N.unsqueeze(-1) < 1.0
    dropped_NV[:, 0] = False
    return torch.empty_like(weights_NV).scatter_(-1, order_NV, sorted_NV.masked_fill_(dropped_NV, 0))


def inverse_cdf(weights_NV: torch.Tensor, uniforms_N: torch.Tensor) -> torch.Tensor:
    """The first token whose cumulative weight exceeds `uniforms_N` in [0, 1) of the total; its own is above 0.

    In two steps, so that one pass over the vocabulary is a plain sum: first the block of tokens, then the token in it.
    """
    rows, size = weights_NV.shape
    padded_NV = F.pad(weights_NV, (0, -size % BLOCK_TOKENS))
    blocks_NBC = padded_NV.view(rows, -1, BLOCK_TOKENS)
    until_NB = blocks_NBC.sum(dim=-1, dtype=torch.float64).cumsum(dim=-1)
    targets_N1 = (uniforms_N * until_NB[:, -1]).unsqueeze(-1)
    block_N1 = torch.searchsorted(until_NB, targets_N1, right=True).clamp_(max=until_NB.shape[1] - 1)
    inside_NC = blocks_NBC[torch.arange(rows), block_N1[:, 0]].double()
    before_N1 = until_NB.gather(1, block_N1) - inside_NC.sum(dim=-1, keepdim=True)
    cumulative_NC = before_N1 + inside_NC.cumsum(dim=-1)
    offset_N1 = torch.searchsorted(cumulative_NC, targets_N1, right=True)
    # Rounding may leave the target a hair above the block's last token; then it is the last one of positive weight.
    last_N1 = (BLOCK_TOKENS - 1 - inside_NC.flip(-1).gt(0).int().argmax(dim=-1, keepdim=True)).clamp_(min=0)
    return (block_N1 * BLOCK_TOKENS + torch.minimum(offset_N1, last_N1)).squeeze(-1).clamp_(max=size - 1)


def uniform(seeds: list[int], positions: list[int]) -> np.ndarray:
    """One float64 in [0, 1) per (seed, position): 53 bits of the position's number in the seed's splitmix64 stream."""
    streams = _splitmix64(np.array([seed & 0xFFFF_FFFF_FFFF_FFFF for seed in seeds], dtype=np.uint64))
    mixed = _splitmix64(streams + np.array(positions, dtype=np.uint64) * _GOLDEN)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


_GOLDEN = np.uint64(0x9E37_79B9_7F4A_7C15)


def _splitmix64(counters: np.ndarray) -> np.ndarray:
    """One step of splitmix64 (Steele, Lea, Flood 2014), vectorised; wraps modulo 2^64."""
    mixed = counters + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return mixed ^ (mixed >> np.uint64(31))
