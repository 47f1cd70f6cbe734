"""Hand-written forward pass of Llama, Qwen2 and Qwen3: no padding, fused projections, half as many operations.

The new tokens of all rows are multiplied with the weight matrices as one list `[T, hidden]`; only attention
distinguishes rows. The fused matrices are not copies: the model's parameters become views of them. On some CPUs,
weights also have a packed copy, which is renewed when they change. On CUDA, passes in which every row has one new token
are CUDA graphs (`cuda/`).
"""

import ctypes
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

from quartet.engine.agreement import MAX_GAP_NATS
from quartet.engine.cuda.support import can_run, graphs_support
from quartet.engine.forward import Span
from quartet.engine.kernel_library import kernel_library
from quartet.engine.layer import Layer, Weights, fuse
from quartet.engine.model_rows import make_rows
from quartet.engine.packed_linear import PackedLinear
from quartet.engine.row_attention import Pass, attend, plan_pass
from quartet.engine.row_kernel import RowKernel
from quartet.engine.token_kernel import TokenKernel, can_compute
from quartet.engine.token_ops import Places, TokenOps, TorchTokenOps

if TYPE_CHECKING:
    from quartet.engine.cuda.decode_pass import DecodePass
    from quartet.engine.cuda.graphs import DecodeGraphs

ARCHITECTURES = {"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}


def is_dense(model: PreTrainedModel) -> bool:
    """Return whether `DenseForward` supports this model."""
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


class DenseForward:
    """`Forward` for dense models. Shapes: T new tokens in a pass, in S spans."""

    def __init__(self, model: PreTrainedModel, max_slots: int, max_context_tokens: int) -> None:
        config, decoder = model.config, getattr(model, model.base_model_prefix)
        embedding: Any = model.get_input_embeddings()
        head: Any = model.get_output_embeddings()
        self.vocab_size: int = embedding.num_embeddings
        self._heads: int = config.num_attention_heads
        self.rows = make_rows(model, max_slots, max_context_tokens)
        self._head = PackedLinear(head.weight)
        library = kernel_library(self.rows.keys, config.num_attention_heads)
        self._attention = RowKernel(library) if library else None
        self.ops = _token_ops(library, model, self.rows.keys.shape[-1])
        positions_1L = torch.arange(max_context_tokens, device=model.device).unsqueeze(0)
        # In both tables the second half repeats the first.
        cos_Lh, sin_Lh = (
            table_1Ld[0, :, : table_1Ld.shape[-1] // 2].contiguous()
            for table_1Ld in decoder.rotary_emb(embedding.weight, positions_1L)
        )
        self._weights = Weights(
            embedding_VD=embedding.weight,
            layers=[fuse(layer) for layer in decoder.layers],
            norm_D=decoder.norm.weight,
            head_VD=head.weight,
            rotary_Lh=(cos_Lh, sin_Lh),
            eps=config.rms_norm_eps,
        )
        self._decode = self._graphs() if graphs_support(self.rows.keys) else None

    def weights_changed(self) -> None:
        for layer in self._weights.layers:
            for matrix in (layer.qkv, layer.out, layer.gate_up, layer.down):
                matrix.pack()
        self._head.pack()

    def extend(self, spans: list[Span]) -> torch.Tensor:
        self.rows.reserve(len(spans), max(span.start + len(span.token_ids) for span in spans))
        if self._decode is not None and all(len(span.token_ids) == 1 for span in spans):
            return self._decode(spans)
        return self.extend_eagerly(spans)

    def extend_eagerly(self, spans: list[Span]) -> torch.Tensor:
        """Compute `extend` kernel by kernel, in rows that are large enough."""
        plan = plan_pass(spans, self.rows.keys, self._attention)
        cos_Th, sin_Th = (table_Lh[plan.positions_T] for table_Lh in self._weights.rotary_Lh)
        places = Places(plan.rows_T, plan.positions_T, cos_Th, sin_Th)
        x_TD = F.embedding(plan.ids_T, self._weights.embedding_VD)
        for number, layer in enumerate(self._weights.layers):
            x_TD = self._layer(x_TD, layer, number, plan, places)
        return self._head(self.ops.normed(x_TD[plan.last_S], self._weights.norm_D))

    def _layer(self, x_TD: torch.Tensor, layer: Layer, number: int, plan: Pass, places: Places) -> torch.Tensor:
        keys, values = self.rows.keys[number], self.rows.values[number]
        projected_TE = layer.qkv(self.ops.normed(x_TD, layer.norm_in))
        q_THd = self.ops.placed(projected_TE, layer.head_norms, keys, values, places)
        x_TD = layer.out.added_to(x_TD, attend(q_THd, keys, values, plan))
        return layer.down.added_to(x_TD, self.ops.gated(layer.gate_up(self.ops.normed(x_TD, layer.norm_mid))))

    def decode_pass(self) -> "DecodePass":
        """Return the pass over one new token per row in Triton kernels, which CUDA graphs repeat."""
        from quartet.engine.cuda.decode_pass import DecodePass

        return DecodePass(self._weights, self._heads, self.rows.keys.shape[2], self.rows.keys.shape[4])

    def _graphs(self) -> "DecodeGraphs | None":
        """Return graphs of the passes that decode, or None if the kernels do not run with the sizes of this model."""
        from quartet.engine.cuda.graphs import DecodeGraphs

        compute = self.decode_pass()
        with torch.cuda.device(self.rows.keys.device):
            if not all(can_run(partial(compute.probe, self.rows, rows)) for rows in (1, self.rows.max_rows)):
                return None
        return DecodeGraphs(compute, self.rows, self.vocab_size)


def _token_ops(library: ctypes.CDLL | None, model: PreTrainedModel, head_dim: int) -> TokenOps:
    config: Any = model.config
    if library is None or not can_compute(model, head_dim):
        return TorchTokenOps(config.rms_norm_eps)
    return TokenKernel(library, config.num_attention_heads, head_dim, config.rms_norm_eps)
