"""Tokens that no response may hold: engine and trainer take them out of the distribution alike."""

from collections.abc import Sequence

import torch


def without_tokens(logits_NV: torch.Tensor, token_ids: Sequence[int]) -> torch.Tensor:
    """Return the logits with the lowest finite number at these tokens: their probability is exactly 0, and so is what
    they add to an entropy and to a gradient."""
    forbidden = torch.tensor(token_ids, device=logits_NV.device)
    return logits_NV.index_fill(-1, forbidden, torch.finfo(logits_NV.dtype).min)
