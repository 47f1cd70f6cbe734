"""Forward pass of Llama, Qwen2 and Qwen3 over one new token per row, as a fixed list of kernels."""

from typing import Any

import torch
import torch.nn.functional as F

from quartet.engine.cuda.attention import DecodeAttention
from quartet.engine.cuda.inputs import DecodeInputs
from quartet.engine.cuda.token_kernels import gated, normed, placed
from quartet.engine.layer import Weights
from quartet.engine.rows import Rows

LEAST_SHARED_BYTES = 48 * 1024
"""Shared memory that a program can have on every CUDA device; for builds of PyTorch that do not say how much it is."""


class DecodePass:
    """Forward pass over N tokens, each in its own row. It reads all values that vary from `DecodeInputs`."""

    def __init__(self, weights: Weights, heads: int, kv_heads: int, head_dim: int) -> None:
        self._weights, self._kv_heads = weights, kv_heads
        self._attention = DecodeAttention(heads, kv_heads, head_dim, *_resources(weights.embedding_VD.device))

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

    @torch.inference_mode()
    def probe(self, rows: Rows, num_tokens: int) -> None:
        """Run every kernel over `num_tokens` tokens of padding, which changes no row, and wait for the end."""
        weights = self._weights
        inputs = DecodeInputs(num_tokens, weights.embedding_VD.device)
        inputs.fill([], rows)
        logits_NV = weights.head_VD.new_empty(num_tokens, len(weights.head_VD))
        self(inputs, logits_NV)
        logits_NV[0, 0].item()


def _resources(device: torch.device) -> tuple[int, int]:
    """Return the number of multiprocessors of a device, and the bytes of shared memory that a program can have."""
    if device.type != "cuda":  # Triton's interpreter, in tests
        return 1, LEAST_SHARED_BYTES
    found: Any = torch.cuda.get_device_properties(device)
    return found.multi_processor_count, getattr(found, "shared_memory_per_block_optin", LEAST_SHARED_BYTES)
