"""Attention over packed branches: the only layer of a decoder in which the tokens of a branch affect each other.

On a CPU a kernel attends along the tree of the branches, so that attention for a shared prefix is computed once. On a
GPU, in bfloat16, FlashAttention does (`quartet.train.gpu.flash_attention`). Otherwise, queries, keys and values of the
packed row are gathered branch by branch, with a shared prefix repeated for each branch, and one of the equal outputs
for the prefix is kept. The other layers compute a shared prefix once in all cases. Its gradient is the sum over the
branches, as if each branch had its own row.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from quartet.train.gpu.flash_attention import attend_flash, can_flash
from quartet.train.kernel.tree_attention import attend_tree, tree_kernel
from quartet.train.packing.microbatch import Microbatch
from quartet.train.packing.plain_attention import require_plain
from quartet.train.packing.segments import segments_of
from quartet.train.packing.tree import Tree

NAME, FLASH_NAME = "quartet_branches", "quartet_packed"
"""Names in the registry of `transformers`, which would take a name with "flash" for an implementation of its own."""
FULL_ATTENTION = frozenset({"llama", "qwen3_vl_text"})
"""Model types whose configuration does not list the attention of each layer, although all layers have full
attention."""


def attend(
    module: torch.nn.Module,
    query_1HLd: torch.Tensor,
    key_1KLd: torch.Tensor,
    value_1KLd: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    tree: Tree,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Return the attention outputs `[1, L, H, d]`. H: query heads, K: key-value heads, L: columns of the row.

    The kernel needs values of the keys' size. Raises `ConfigError` for a model with another kind of attention.
    """
    require_plain(module, kwargs)
    head_dim, value_1KLd = query_1HLd.shape[3], value_1KLd.to(query_1HLd.dtype)  # which differ under autocast
    kernel = tree_kernel(head_dim, query_1HLd.dtype, query_1HLd.device)
    if kernel is None or value_1KLd.shape[3] != head_dim:
        return _attend_gathered(module, (query_1HLd, key_1KLd, value_1KLd), tree, **kwargs), None
    scale = kwargs.get("scaling") or head_dim**-0.5
    return attend_tree(kernel, query_1HLd[0], key_1KLd[0], value_1KLd[0], tree, scale).unsqueeze(0), None


def _attend_gathered(
    module: torch.nn.Module, packed: Sequence[torch.Tensor], tree: Tree, **kwargs: Any
) -> torch.Tensor:
    query_SHMd, key_SKMd, value_SKMd = (_by_branch(part, tree.columns) for part in packed)
    output_SMHd, _ = sdpa_attention_forward(module, query_SHMd, key_SKMd, value_SKMd, None, **kwargs)
    return output_SMHd.flatten(0, 1).index_select(0, tree.owners).unsqueeze(0)


def _by_branch(packed_1HLd: torch.Tensor, columns_SM: torch.Tensor) -> torch.Tensor:
    """Return the values of a packed row gathered by branch: `[S, H, M, d]`."""
    _, heads, _, head_dim = packed_1HLd.shape
    rows_XHd = packed_1HLd[0].transpose(0, 1).index_select(0, columns_SM.flatten())
    return rows_XHd.view(*columns_SM.shape, heads, head_dim).transpose(1, 2)


AttentionInterface.register(NAME, attend)
AttentionInterface.register(FLASH_NAME, attend_flash)


def attends_everywhere(model: PreTrainedModel) -> bool:
    """Return whether branches may be packed into one row: all layers must have full attention, which can be replaced.

    A sliding window or a recurrence would extend over the borders of branches.
    """
    config = _decoder_config(model)
    if config.model_type in FULL_ATTENTION:
        return True
    layer_types = getattr(config, "layer_types", None)
    everywhere = layer_types is not None and all(kind == "full_attention" for kind in layer_types)
    return everywhere and bool(getattr(model, "_supports_attention_backend", False))


def uses_flash(model: PreTrainedModel, compute_dtype: torch.dtype) -> bool:
    """Return whether attention over packed rows is FlashAttention."""
    return attends_everywhere(model) and can_flash(_head_dim(model), compute_dtype, model.device)


def gathers_branches(model: PreTrainedModel) -> bool:
    """Return whether attention gathers keys and values of each branch, for want of a kernel that follows the tree."""
    return tree_kernel(_head_dim(model), model.dtype, model.device) is None


@contextmanager
def attending_by_branch(model: PreTrainedModel, microbatch: Microbatch) -> Iterator[dict[str, Any]]:
    """Replace the model's attention inside the block, if the microbatch is packed; yield extra arguments for the
    model."""
    if microbatch.tree is None:
        yield {}
        return
    config, device, tree = _decoder_config(model), microbatch.ids_BL.device, microbatch.tree
    flash = uses_flash(model, microbatch.compute_dtype)
    before, config._attn_implementation = config._attn_implementation, FLASH_NAME if flash else NAME
    try:
        # If it receives a mask of four dimensions, transformers makes no mask of its own.
        mask = torch.empty(1, 1, 0, 0, device=device)
        yield {"attention_mask": mask, **({"segments": segments_of(tree)} if flash else {"tree": tree})}
    finally:
        config._attn_implementation = before


def _head_dim(model: PreTrainedModel) -> int:
    config = _decoder_config(model)
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def _decoder_config(model: PreTrainedModel) -> Any:
    """Return the configuration of the decoder's layers. A vision tower has its own, so its attention is unchanged."""
    return model.get_decoder().config
