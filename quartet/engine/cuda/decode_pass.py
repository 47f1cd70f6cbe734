"""Forward pass of Llama, Qwen2 and Qwen3 over one new token per row, as a fixed list of kernels."""

import torch
import torch.nn.functional as F

from quartet.engine.cuda.attention import DecodeAttention
from quartet.engine.cuda.inputs import DecodeInputs
from quartet.engine.cuda.token_kernels import gated, normed, placed
from quartet.engine.layer import Weights


class DecodePass:
    """Forward pass over N tokens, each in its own row. It reads everything that varies from `DecodeInputs`."""

    def __init__(self, weights: Weights, heads: int, kv_heads: int, head_dim: int) -> None:
        self._weights, self._kv_heads = weights, kv_heads
        device = weights.embedding_VD.device
        multiprocessors = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
        self._attention = DecodeAttention(heads, kv_heads, head_dim, multiprocessors)

    def __call__(self, inputs: DecodeInputs, logits_NV: torch.Tensor) -> None:
        """Append the tokens to their rows, and write the logits after them to `logits_NV`."""
        weights = self._weights
        x_ND = F.embedding(inputs.ids_N, weights.embedding_VD)
        for number, layer in enumerate(weights.layers):
            projected_NE = layer.qkv(normed(x_ND, layer.norm_in, weights.eps))
            q_NHd = placed(
                projected_NE, layer.head_norms, weights.rotary_Lh, inputs, number, self._kv_heads, weights.eps
            )
            x_ND = layer.out.add_into(x_ND, self._attention(q_NHd, inputs, number))
            hidden_NM = gated(layer.gate_up(normed(x_ND, layer.norm_mid, weights.eps)))
            x_ND = layer.down.add_into(x_ND, hidden_NM)
        torch.mm(normed(x_ND, weights.norm_D, weights.eps), weights.head_VD.t(), out=logits_NV)
