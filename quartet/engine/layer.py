"""Weights of a dense model in the order of the forward pass, with fused projections."""

from typing import Any, NamedTuple

import torch
from torch import nn

from quartet.engine.packed_linear import PackedLinear
from quartet.engine.token_ops import HeadNorms


class Layer(NamedTuple):
    """One decoder layer. H: query heads, K: key-value heads, d: head_dim, D: hidden size, M: size of the MLP."""

    norm_in: torch.Tensor  # [D]
    qkv: PackedLinear  # [(H + 2K) d, D]
    head_norms: HeadNorms | None
    out: PackedLinear  # [D, H d]
    norm_mid: torch.Tensor  # [D]
    gate_up: PackedLinear  # [2M, D]
    down: PackedLinear  # [D, M]


class Weights(NamedTuple):
    """Weights of a dense model, as views of the model's parameters. V: vocabulary, D: hidden size."""

    embedding_VD: torch.Tensor
    layers: list[Layer]
    norm_D: torch.Tensor
    head_VD: torch.Tensor
    rotary_Lh: tuple[torch.Tensor, torch.Tensor]
    """Cosines and sines by position."""
    eps: float


def fuse(layer: Any) -> Layer:
    """Return a layer's weights. Its projections become views of the fused matrices."""
    attention, mlp = layer.self_attn, layer.mlp
    projections = [attention.q_proj, attention.k_proj, attention.v_proj]
    biased = attention.q_proj.bias is not None
    q_norm, k_norm = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)
    return Layer(
        norm_in=layer.input_layernorm.weight,
        qkv=PackedLinear(
            _joined([linear.weight for linear in projections]),
            _joined([linear.bias for linear in projections]) if biased else None,
        ),
        head_norms=HeadNorms(q_norm.weight, k_norm.weight) if q_norm is not None and k_norm is not None else None,
        out=PackedLinear(attention.o_proj.weight, attention.o_proj.bias),
        norm_mid=layer.post_attention_layernorm.weight,
        gate_up=PackedLinear(_joined([mlp.gate_proj.weight, mlp.up_proj.weight])),
        down=PackedLinear(mlp.down_proj.weight),
    )


@torch.no_grad()
def _joined(parameters: list[nn.Parameter]) -> torch.Tensor:
    """Return one tensor with the rows of all parameters, and make the parameters views of it."""
    joined = torch.cat([parameter.detach() for parameter in parameters])
    parts = joined.split([len(parameter) for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.data = part
    return joined
