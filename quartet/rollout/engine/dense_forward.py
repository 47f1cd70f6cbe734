"""The forward pass of Llama, Qwen2 and Qwen3 by hand: no padding, fused projections, half as many operations.

All new tokens of all rows go through the matrices as one list `[T, hidden]`; only attention looks at rows. The fused
matrices are the model's own memory: its parameters become views of them, so weights loaded into the model are served
at once, and what checks the model checks what is served.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel

from quartet.policy.linear import add_linear, linear
from quartet.rollout.engine.agreement import MAX_GAP_NATS
from quartet.rollout.engine.forward import Span, make_rows
from quartet.rollout.engine.row_attention import Pass, attend, plan_pass
from quartet.rollout.engine.row_kernel import row_kernel

ARCHITECTURES = {"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}


def is_dense(model: PreTrainedModel) -> bool:
    """Whether `DenseForward` can run this model."""
    config: Any = model.config
    rope = getattr(config, "rope_parameters", None) or {}
    return (
        type(model).__name__ in ARCHITECTURES
        and config.hidden_act == "silu"
        and not getattr(config, "mlp_bias", False)
        and "sliding_attention" not in (getattr(config, "layer_types", None) or [])
        and rope.get("rope_type", "default") == "default"
        and model.dtype in MAX_GAP_NATS
    )


class Layer(NamedTuple):
    """One decoder layer; H heads, K heads of keys and values, d head_dim, D hidden size, M size of the MLP."""

    norm_in: torch.Tensor  # [D]
    qkv: torch.Tensor  # [(H + 2K) d, D]
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None  # [d]
    k_norm: torch.Tensor | None  # [d]
    out: torch.Tensor  # [D, H d]
    out_bias: torch.Tensor | None
    norm_mid: torch.Tensor  # [D]
    gate_up: torch.Tensor  # [2M, D]
    down: torch.Tensor  # [D, M]


class DenseForward:
    """Implements `Forward`. T new tokens in a pass, in S spans."""

    def __init__(self, model: PreTrainedModel, max_slots: int, max_context_tokens: int) -> None:
        config, decoder = model.config, getattr(model, model.base_model_prefix)
        embedding: Any = model.get_input_embeddings()
        head: Any = model.get_output_embeddings()
        self.vocab_size: int = embedding.num_embeddings
        self.rows = make_rows(model, max_slots, max_context_tokens)
        self._embedding, self._norm, self._head = embedding.weight, decoder.norm.weight, head.weight
        self._heads: int = config.num_attention_heads
        self._kernel = row_kernel(self.rows.keys, self._heads)
        self._eps: float = config.rms_norm_eps
        self._layers = [_fuse(layer) for layer in decoder.layers]
        positions_1L = torch.arange(max_context_tokens, device=model.device).unsqueeze(0)
        cos_1Ld, sin_1Ld = decoder.rotary_emb(self._embedding, positions_1L)
        # The second half of both tables repeats the first.
        self._cos_Ld, self._sin_Lh = cos_1Ld[0], sin_1Ld[0, :, : sin_1Ld.shape[-1] // 2].contiguous()

    def extend(self, spans: list[Span]) -> torch.Tensor:
        self.rows.reserve(len(spans), max(span.start + len(span.token_ids) for span in spans))
        plan = plan_pass(spans, self.rows.keys, self._kernel)
        x_TD = F.embedding(plan.ids_T, self._embedding)
        cos_T1d = self._cos_Ld[plan.positions_T].unsqueeze(1)
        sin_T1h = self._sin_Lh[plan.positions_T].unsqueeze(1)
        for number, layer in enumerate(self._layers):
            x_TD = self._layer(x_TD, layer, number, plan, cos_T1d, sin_T1h)
        last_SD = self._normed(x_TD[plan.last_S], self._norm)
        return linear(last_SD, self._head)

    def _layer(
        self,
        x_TD: torch.Tensor,
        layer: Layer,
        number: int,
        plan: Pass,
        cos_T1d: torch.Tensor,
        sin_T1h: torch.Tensor,
    ) -> torch.Tensor:
        keys, values = self.rows.keys[number], self.rows.values[number]
        heads, kv_heads, head_dim = self._heads, keys.shape[1], keys.shape[3]
        projected_THd = linear(self._normed(x_TD, layer.norm_in), layer.qkv, layer.qkv_bias).unflatten(
            -1, (-1, head_dim)
        )
        qk_THd = projected_THd[:, : heads + kv_heads]
        if layer.q_norm is not None and layer.k_norm is not None:
            qk_THd = F.rms_norm(qk_THd, (head_dim,), None, self._eps)
            qk_THd[:, :heads].mul_(layer.q_norm)
            qk_THd[:, heads:].mul_(layer.k_norm)
        qk_THd = _rotated(qk_THd, cos_T1d, sin_T1h)
        keys[plan.rows_T, :, plan.positions_T] = qk_THd[:, heads:]
        values[plan.rows_T, :, plan.positions_T] = projected_THd[:, heads + kv_heads :]
        attended_TD = attend(qk_THd[:, :heads], keys, values, plan)
        x_TD = add_linear(x_TD, attended_TD, layer.out, layer.out_bias)
        gate_TM, up_TM = linear(self._normed(x_TD, layer.norm_mid), layer.gate_up).chunk(2, dim=-1)
        return add_linear(x_TD, F.silu(gate_TM).mul_(up_TM), layer.down)

    def _normed(self, x_TD: torch.Tensor, weight_D: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x_TD, weight_D.shape, weight_D, self._eps)


def _rotated(x_THd: torch.Tensor, cos_T1d: torch.Tensor, sin_T1h: torch.Tensor) -> torch.Tensor:
    """Rotary embedding (Su et al. 2021) in the half-split form: (a, b) -> (a cos - b sin, b cos + a sin)."""
    half = sin_T1h.shape[-1]
    rotated_THd = x_THd * cos_T1d
    rotated_THd[..., :half].addcmul_(x_THd[..., half:], sin_T1h, value=-1)
    rotated_THd[..., half:].addcmul_(x_THd[..., :half], sin_T1h)
    return rotated_THd


def _fuse(layer: Any) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    projections = [attention.q_proj, attention.k_proj, attention.v_proj]
    biased = attention.q_proj.bias is not None
    q_norm, k_norm = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)
    return Layer(
        norm_in=layer.input_layernorm.weight,
        qkv=_joined([linear.weight for linear in projections]),
        qkv_bias=_joined([linear.bias for linear in projections]) if biased else None,
        q_norm=q_norm and q_norm.weight,
        k_norm=k_norm and k_norm.weight,
        out=attention.o_proj.weight,
        out_bias=attention.o_proj.bias,
        norm_mid=layer.post_attention_layernorm.weight,
        gate_up=_joined([mlp.gate_proj.weight, mlp.up_proj.weight]),
        down=mlp.down_proj.weight,
    )


@torch.no_grad()
def _joined(parameters: list[nn.Parameter]) -> torch.Tensor:
    """One tensor of all rows; the parameters become views of it."""
    joined = torch.cat([parameter.detach() for parameter in parameters])
    parts = joined.split([len(parameter) for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.data = part
    return joined
