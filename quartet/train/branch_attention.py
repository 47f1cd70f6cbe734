"""Attention over packed branches: everything else in a decoder looks at one token at a time, attention at its branch.

Queries, keys and values of the packed row are put together branch by branch, a shared beginning as often as it is
shared; then attention is plainly causal, and of its equal outputs one is kept. So what branches share goes through the
matrices once, and its gradient is the sum over these branches, as if each had a row of its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from quartet.train.microbatch import Microbatch

NAME = "quartet_branches"


def attend(
    module: torch.nn.Module,
    query_1HLd: torch.Tensor,
    key_1KLd: torch.Tensor,
    value_1KLd: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    columns_SM: torch.Tensor,
    owners_L: torch.Tensor,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Output `[1, L, H, d]` of H heads, with K heads of keys and values; see `Microbatch` for the other shapes."""
    query_SHMd, key_SKMd, value_SKMd = (_by_branch(part, columns_SM) for part in (query_1HLd, key_1KLd, value_1KLd))
    output_SMHd, _ = sdpa_attention_forward(module, query_SHMd, key_SKMd, value_SKMd, None, **kwargs)
    return output_SMHd.flatten(0, 1).index_select(0, owners_L).unsqueeze(0), None


def _by_branch(packed_1HLd: torch.Tensor, columns_SM: torch.Tensor) -> torch.Tensor:
    """`[S, H, M, d]`: what belongs to each branch."""
    _, heads, _, head_dim = packed_1HLd.shape
    rows_XHd = packed_1HLd[0].transpose(0, 1).index_select(0, columns_SM.flatten())
    return rows_XHd.view(*columns_SM.shape, heads, head_dim).transpose(1, 2)


AttentionInterface.register(NAME, attend)


def attends_everywhere(model: PreTrainedModel) -> bool:
    """Whether branches may be packed: every layer is full attention, and one that can be replaced. A window or a
    recurrence would look across branches."""
    layer_types = getattr(model.config, "layer_types", None)
    everywhere = layer_types is not None and all(kind == "full_attention" for kind in layer_types)
    return everywhere and bool(getattr(model, "_supports_attention_backend", False))


@contextmanager
def attending_by_branch(model: PreTrainedModel, microbatch: Microbatch) -> Iterator[dict[str, Any]]:
    """Inside, a packed microbatch may go through the model, with the arguments that this gives."""
    if microbatch.columns_SM is None:
        yield {}
        return
    config: Any = model.config
    before, config._attn_implementation = config._attn_implementation, NAME
    try:
        # A mask of four dimensions is taken as it is: transformers makes none of its own.
        no_mask = torch.empty(1, 1, 0, 0, device=microbatch.ids_BL.device)
        yield {"attention_mask": no_mask, "columns_SM": microbatch.columns_SM, "owners_L": microbatch.owners_L}
    finally:
        config._attn_implementation = before
