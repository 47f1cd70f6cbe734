"""Changes to a distribution before sampling: forbidden tokens, temperature, top-k, top-p.

The changes are applied in this order, as in vLLM and `transformers`. Tensors have N rows and V tokens of the
vocabulary. Weights are unnormalised probabilities.
"""

from collections.abc import Mapping

import torch

from quartet.types import Sampling


def without(logits_NV: torch.Tensor, forbidden: Mapping[int, list[int]]) -> torch.Tensor:
    """Return a copy in which the given tokens of the given rows have logit -inf."""
    rows = [row for row, token_ids in forbidden.items() for _ in token_ids]
    tokens = [token_id for token_ids in forbidden.values() for token_id in token_ids]
    rows_F, tokens_F = torch.tensor([rows, tokens], dtype=torch.long, device=logits_NV.device)
    return logits_NV.index_put((rows_F, tokens_F), logits_NV.new_tensor(-torch.inf))


def shape(shifted_NV: torch.Tensor, samplings: list[Sampling]) -> torch.Tensor:
    """Apply temperature, top-k and top-p to logits whose maximum is 0; return unnormalised probabilities.

    The rows must be sampled, not greedy, so their temperature is above 0.
    """
    temperatures_N1 = shifted_NV.new_tensor([[sampling.temperature] for sampling in samplings])
    weights_NV = (shifted_NV / temperatures_N1).exp_()
    if any(sampling.top_k for sampling in samplings):
        top_k_N = torch.tensor([sampling.top_k for sampling in samplings], device=weights_NV.device)
        weights_NV = keep_top_k(weights_NV, top_k_N)
    if any(sampling.top_p < 1 for sampling in samplings):
        weights_NV = keep_top_p(weights_NV, weights_NV.new_tensor([sampling.top_p for sampling in samplings]))
    return weights_NV


def keep_top_k(weights_NV: torch.Tensor, top_k_N: torch.Tensor) -> torch.Tensor:
    """Keep the `top_k` most likely tokens and ties with the last of them, and set the weights of the others to 0.

    A row whose `top_k` is 0 keeps all tokens.
    """
    size = weights_NV.shape[-1]
    largest_NK = weights_NV.topk(min(int(top_k_N.max()), size), dim=-1).values
    last_N1 = (top_k_N.clamp(min=1, max=size) - 1).unsqueeze(-1)
    least_N1 = largest_NK.gather(-1, last_N1).masked_fill_(top_k_N.unsqueeze(-1) == 0, 0)
    return weights_NV.masked_fill(weights_NV < least_N1, 0)


def keep_top_p(weights_NV: torch.Tensor, top_p_N: torch.Tensor) -> torch.Tensor:
    """Keep the smallest set of most likely tokens whose mass reaches `top_p`, and set the weights of the others to 0.

    A token is kept if the mass of the more likely tokens is below `top_p`, so the most likely token is always kept
    (nucleus sampling, Holtzman et al. 2020).
    """
    sorted_NV, order_NV = weights_NV.sort(dim=-1, descending=True)
    mass_NV = sorted_NV.cumsum(dim=-1)
    dropped_NV = mass_NV - sorted_NV >= top_p_N.unsqueeze(-1) * mass_NV[:, -1:]
    dropped_NV &= top_p_N.unsqueeze(-1) < 1.0
    dropped_NV[:, 0] = False
    return torch.empty_like(weights_NV).scatter_(-1, order_NV, sorted_NV.masked_fill_(dropped_NV, 0))
