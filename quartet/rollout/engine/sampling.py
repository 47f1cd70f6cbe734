"""Draws one token per row from logits, with the log-prob of the distribution actually drawn from.

A draw depends on nothing but the row's logits, its request's seed and the token's position: the uniform number comes
from a counter-based generator, and the token from the inverse of the cumulative distribution over the vocabulary. So a
request samples the same tokens alone or among others.
"""

from typing import NamedTuple

import numpy as np
import torch

from quartet.types import Sampling


class Sampled(NamedTuple):
    """One draw per row; N = rows."""

    token_ids: list[int]
    logprobs: list[float]
    """After temperature and top-p, in nats; a greedy row reports the log-prob at temperature 1."""
    finite: list[bool]
    """False where the logits held NaN or infinity: that row's token means nothing."""


def sample(logits_NV: torch.Tensor, samplings: list[Sampling], positions_N: list[int]) -> Sampled:
    """Draw one token per row. `positions_N` are the positions in the sequence that the new tokens will take."""
    logits_NV = logits_NV.float()
    finite_N = logits_NV.isfinite().all(dim=-1)
    greedy_N = [sampling.temperature == 0 for sampling in samplings]
    temperatures = [1.0 if greedy else s.temperature for greedy, s in zip(greedy_N, samplings, strict=True)]
    if any(temperature != 1.0 for temperature in temperatures):
        logits_NV = logits_NV / logits_NV.new_tensor(temperatures).unsqueeze(-1)
    logprobs_NV = logits_NV.log_softmax(dim=-1)
    # A greedy row keeps its whole distribution: its log-prob is the one at temperature 1.
    top_p_N = [1.0 if greedy else s.top_p for greedy, s in zip(greedy_N, samplings, strict=True)]
    if any(top_p < 1.0 for top_p in top_p_N):
        logprobs_NV = keep_top_p(logprobs_NV, logprobs_NV.new_tensor(top_p_N))
    if all(greedy_N):
        tokens_N = logprobs_NV.argmax(dim=-1)
    else:
        uniforms = uniform([s.seed for s in samplings], positions_N)
        tokens_N = inverse_cdf(logprobs_NV, torch.from_numpy(uniforms).to(logits_NV.device))
        if any(greedy_N):
            tokens_N = torch.where(torch.tensor(greedy_N).to(tokens_N.device), logprobs_NV.argmax(dim=-1), tokens_N)
    drawn_N = logprobs_NV.gather(-1, tokens_N.unsqueeze(-1)).squeeze(-1)
    return Sampled(tokens_N.tolist(), drawn_N.tolist(), finite_N.tolist())


def keep_top_p(logprobs_NV: torch.Tensor, top_p_N: torch.Tensor) -> torch.Tensor:
    """Keep the smallest set of most likely tokens whose mass reaches `top_p`, renormalised; others become -inf.

    A token is kept when the mass of the more likely ones is below `top_p` (Holtzman et al. 2020, nucleus sampling), so
    the most likely token always stays.
    """
    sorted_NV, order_NV = logprobs_NV.sort(dim=-1, descending=True)
    probs_NV = sorted_NV.exp()
    mass_before_NV = probs_NV.cumsum(dim=-1) - probs_NV
    dropped_NV = mass_before_NV >= top_p_N.unsqueeze(-1)
    dropped_NV &= top_p_N.unsqueeze(-1) < 1.0
    dropped_NV[:, 0] = False
    kept_NV = sorted_NV.masked_fill(dropped_NV, -torch.inf).log_softmax(dim=-1)
    return torch.empty_like(logprobs_NV).scatter_(-1, order_NV, kept_NV)


def inverse_cdf(logprobs_NV: torch.Tensor, uniforms_N: torch.Tensor) -> torch.Tensor:
    """The first token whose cumulative probability exceeds `uniforms_N` in [0, 1) of the total; its own is above 0."""
    cumulative_NV = logprobs_NV.double().exp().cumsum(dim=-1)
    targets_N = uniforms_N * cumulative_NV[:, -1]
    tokens_N = torch.searchsorted(cumulative_NV, targets_N.unsqueeze(-1), right=True).squeeze(-1)
    # Only a row of NaN, which the caller refuses, can point past the end.
    return tokens_N.clamp_(max=logprobs_NV.shape[-1] - 1)


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
