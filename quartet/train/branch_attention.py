"""Attention over packed branches. All other layers of a decoder act on single tokens; attention acts on a branch.

Queries, keys and values of the packed row are gathered branch by branch, with a shared prefix repeated for each branch.
Attention is then plainly causal, and one of the equal outputs is kept. So a shared prefix goes through the matrices
once, and its gradient is the sum over these branches, as if each had a row of its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from quartet.train.microbatch import Microbatch

NAME = "quartet_branches"
FULL_ATTENTION = frozenset({"qwen3_vl_text"})
"""Decoders whose configuration names no types of layers: every layer of theirs is full attention."""


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
    """Return outputs `[1, L, H, d]` of H heads, with K heads of keys and values; see `Microbatch` for the other
    shapes."""
    query_SHMd, key_SKMd, value_SKMd = (_by_branch(part, columns_SM) for part in (query_1HLd, key_1KLd, value_1KLd))
    output_SMHd, _ = sdpa_attention_forward(module, query_SHMd, key_SKMd, value_SKMd, None, **kwargs)
    return output_SMHd.flatten(0, 1).index_select(0, owners_L).unsqueeze(0), None


def _by_branch(packed_1HLd: torch.Tensor, columns_SM: torch.Tensor) -> torch.Tensor:
    """Return `[S, H, M, d]`: the packed values gathered by branch."""
    _, heads, _, head_dim = packed_1HLd.shape
    rows_XHd = packed_1HLd[0].transpose(0, 1).index_select(0, columns_SM.flatten())
    return rows_XHd.view(*columns_SM.shape, heads, head_dim).transpose(1, 2)


AttentionInterface.register(NAME, attend)


def attends_everywhere(model: PreTrainedModel) -> bool:
    """Return whether branches may be packed: every layer is full attention that can be replaced. A sliding window or a
    recurrence would cross branches."""
    config = _decoder_config(model)
    if config.model_type in FULL_ATTENTION:
        return True
    layer_types = getattr(config, "layer_types", None)
    everywhere = layer_types is not None and all(kind == "full_attention" for kind in layer_types)
    return everywhere and bool(getattr(model, "_supports_attention_backend", False))


@contextmanager
def attending_by_branch(model: PreTrainedModel, microbatch: Microbatch) -> Iterator[dict[str, Any]]:
    """Let a packed microbatch pass through the model in this context; yield the model's extra arguments."""
    if microbatch.columns_SM is None:
        yield {}
        return
    config = _decoder_config(model)
    before, config._attn_implementation = config._attn_implementation, NAME
    try:
        # transformers uses a mask of four dimensions as it is and makes none of its own.
        no_mask = torch.empty(1, 1, 0, 0, device=microbatch.ids_BL.device)
        yield {"attention_mask": no_mask, "columns_SM": microbatch.columns_SM, "owners_L": microbatch.owners_L}
    finally:
        config._attn_implementation = before


def _decoder_config(model: PreTrainedModel) -> Any:
    """Return the configuration that the decoder's layers read; a vision tower has its own, and keeps its attention."""
    return model.get_decoder().config
