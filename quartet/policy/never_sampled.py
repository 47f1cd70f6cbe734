"""Remove tokens that must not be sampled from a distribution, in the same way in engine and trainer."""

from collections.abc import Sequence

import torch


def without_tokens(logits_NV: torch.Tensor, token_ids: Sequence[int]) -> torch.Tensor:
    """Return the logits with the lowest finite number at these tokens.

    Their probability is then exactly 0, and so is their contribution to an entropy and to a gradient.
    """
    forbidden = torch.tensor(token_ids, device=logits_NV.device)
    return logits_NV.index_fill(-1, forbidden, torch.finfo(logits_NV.dtype).min)
