"""A decode loop written by hand for one architecture and one fixed batch: the limit of what eager PyTorch reaches here.

It has no requests, no seeds, no stop tokens, no versions and no checks; all rows start and end together. It uses fused
projections, a static cache, grouped queries without expansion, and the output matrix at the last position only.
"""

from typing import Any

import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

from benchmarks.engine_contenders.base import MAX_CONTEXT_TOKENS, Workload

ROWS_PER_PREFILL = 8
"""Number of rows per prefill. This is faster than all rows at once, since activations stay in the processor's cache."""


class BareLoop:
    """Decode loop. Shapes: B rows, T new tokens, D hidden size, H heads, K heads of keys and values."""

    name = "bare_loop"

    def __init__(self, model: PreTrainedModel) -> None:
        config: Any = model.config
        self._heads, self._kv_heads, self._dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        self._eps = config.rms_norm_eps
        inner: Any = model.model
        self._embedding, self._norm = inner.embed_tokens.weight, inner.norm.weight
        self._layers = [_fused(layer) for layer in inner.layers]
        positions = torch.arange(MAX_CONTEXT_TOKENS)[None]
        cos, sin = inner.rotary_emb(self._embedding, positions)
        half = self._dim // 2
        self._cos, self._sin = cos[0, :, None], torch.cat([-sin[0, :, None, :half], sin[0, :, None, half:]], -1)
        self._cache: list[tuple[torch.Tensor, torch.Tensor]] = []

    @torch.inference_mode()
    def run(self, workload: Workload, seed: int) -> None:
        torch.manual_seed(seed)
        rows = len(workload.prompts)
        length = len(workload.prompts[0]) + workload.turns * workload.new_tokens
        length += sum(map(len, workload.observations[0]))
        shape = (rows, self._kv_heads, length, self._dim)
        self._cache = [(self._embedding.new_empty(shape), self._embedding.new_empty(shape)) for _ in self._layers]
        past, new_BT = 0, torch.tensor(workload.prompts)
        token_B1 = new_BT[:, -1:]
        for turn in range(workload.turns):
            logits_BV = torch.cat(
                [
                    self._forward(part_BT, past, first * ROWS_PER_PREFILL)
                    for first, part_BT in enumerate(new_BT.split(ROWS_PER_PREFILL))
                ]
            )
            past += new_BT.shape[1]
            for step in range(workload.new_tokens):
                token_B1 = _sample(logits_BV)
                if step + 1 < workload.new_tokens:
                    logits_BV = self._forward(token_B1, past, 0)
                    past += 1
            if turn + 1 < workload.turns:
                observed = torch.tensor([conversation[turn] for conversation in workload.observations])
                new_BT = torch.cat([token_B1, observed], dim=1)

    def close(self) -> None: ...

    def _forward(self, ids_BT: torch.Tensor, past: int, row: int) -> torch.Tensor:
        """Return the logits `[B, vocab]` after new tokens at positions from `past` on, of the rows from `row` on."""
        (rows, new), end = ids_BT.shape, past + ids_BT.shape[1]
        cos_T1d, sin_T1d = self._cos[past:end], self._sin[past:end]
        mask_TL = None
        if new > 1 and past:
            mask_TL = torch.ones(new, end, dtype=torch.bool).tril(past)
        x_ND = F.embedding(ids_BT.flatten(), self._embedding)
        kv = self._kv_heads
        for layer, (keys, values) in zip(self._layers, self._cache, strict=True):
            normed_ND = F.rms_norm(x_ND, x_ND.shape[-1:], layer["norm_in"], self._eps)
            heads = F.linear(normed_ND, layer["qkv"], layer["qkv_bias"]).view(rows, new, -1, self._dim)
            qk, v = heads.split([self._heads + kv, kv], dim=2)
            qk = F.rms_norm(qk, (self._dim,), None, self._eps) * layer["qk_norm"]
            qk = qk * cos_T1d + qk.roll(self._dim // 2, -1) * sin_T1d
            q, k = qk.split([self._heads, kv], dim=2)
            keys[row : row + rows, :, past:end] = k.transpose(1, 2)
            values[row : row + rows, :, past:end] = v.transpose(1, 2)
            k_BKLd, v_BKLd = keys[row : row + rows, :, :end], values[row : row + rows, :, :end]
            if new == 1:  # the queries that share a head of keys become a sequence without a causal mask
                out = F.scaled_dot_product_attention(q.view(rows, kv, -1, self._dim), k_BKLd, v_BKLd)
            else:
                out = F.scaled_dot_product_attention(
                    q.transpose(1, 2), k_BKLd, v_BKLd, attn_mask=mask_TL, is_causal=not past, enable_gqa=True
                ).transpose(1, 2)
            x_ND = torch.addmm(x_ND, out.reshape(rows * new, -1), layer["out"])
            gate, up = F.linear(
                F.rms_norm(x_ND, x_ND.shape[-1:], layer["norm_mid"], self._eps), layer["gate_up"]
            ).chunk(2, -1)
            x_ND = torch.addmm(x_ND, F.silu(gate) * up, layer["down"])
        last_BD = x_ND.view(rows, new, -1)[:, -1]
        return F.linear(F.rms_norm(last_BD, last_BD.shape[-1:], self._norm, self._eps), self._embedding)


def _fused(layer: Any) -> dict[str, torch.Tensor]:
    attention, mlp = layer.self_attn, layer.mlp
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    heads, kv_heads = (projection.out_features // attention.head_dim for projection in projections[:2])
    qk_norm = [attention.q_norm.weight.expand(heads, -1), attention.k_norm.weight.expand(kv_heads, -1)]
    return {
        "norm_in": layer.input_layernorm.weight.detach(),
        "norm_mid": layer.post_attention_layernorm.weight.detach(),
        "qkv": torch.cat([projection.weight for projection in projections]).detach(),
        "qkv_bias": torch.cat([projection.bias for projection in projections]).detach(),
        "qk_norm": torch.cat(qk_norm).detach(),
        "out": attention.o_proj.weight.detach().t(),
        "gate_up": torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]).detach(),
        "down": mlp.down_proj.weight.detach().t(),
    }


def _sample(logits_BV: torch.Tensor) -> torch.Tensor:
    """Return one token per row, `[B, 1]`, and compute its log-prob, which the loop does not use.

    `torch.multinomial` takes four times as long.
    """
    logprobs_BV = logits_BV.float().log_softmax(-1)
    cumulative_BV = logprobs_BV.exp().cumsum(-1)
    draws_B1 = torch.rand(len(logits_BV), 1) * cumulative_BV[:, -1:]
    token_B1 = torch.searchsorted(cumulative_BV, draws_B1, right=True).clamp_(max=logits_BV.shape[-1] - 1)
    logprobs_BV.gather(-1, token_B1)
    return token_B1
