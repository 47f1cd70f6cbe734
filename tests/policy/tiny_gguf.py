"""A GGUF file of a llama with two layers and random weights, written as llama.cpp's converter writes it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter, TokenType
from gguf.quants import dequantize, quantize
from tokenizers import pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("h e", "Ġ Ġ")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TOKENS = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in MERGES)]
HEADS, KV_HEADS = 2, 1
_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def make_model(max_position: int = 256) -> LlamaForCausalLM:
    """Return the model whose weights the files hold."""
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=max_position,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).eval()


def write_gguf(
    file: Path,
    model: LlamaForCausalLM,
    quantized_as: GGMLQuantizationType = GGMLQuantizationType.F32,
    architecture: str = "llama",
    chat_template: str = CHAT_TEMPLATE,
    pre_tokenizer: str = "smollm",
    without: str = "",
    beside: str = "",
) -> None:
    """Write the model with the tokenizer of `TOKENS`; its matrices are quantised.

    The tensor `without` is left out, and a vector is added under the name `beside`.
    """
    config, writer = model.config, GGUFWriter(file, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_tokenizer)
    writer.add_token_list(TOKENS)
    kinds = [TokenType.CONTROL if token in SPECIAL else TokenType.NORMAL for token in TOKENS]
    writer.add_token_types(kinds)
    writer.add_token_merges(list(MERGES))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(chat_template)
    more = {beside: np.ones(4, np.float32)} if beside else {}
    for name, tensor in (stored(model) | more).items():
        if name == without:
            continue
        kind = quantized_as if tensor.ndim == 2 else GGMLQuantizationType.F32
        writer.add_tensor(name, quantize(tensor, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def stored(model: LlamaForCausalLM) -> dict[str, np.ndarray]:
    """Return the tensors by their names in the file. The halves of rotary embeddings are interleaved there."""
    tensors = {
        "token_embd.weight": model.model.embed_tokens.weight,
        "output_norm.weight": model.model.norm.weight,
    }
    for index, layer in enumerate(model.model.layers):
        tensors |= {
            f"blk.{index}.{_NAMES[name.removesuffix('.weight')]}.weight": one for name, one in layer.named_parameters()
        }
    heads = {"attn_q": HEADS, "attn_k": KV_HEADS}
    return {name: _interleaved(one, heads.get(name.split(".")[-2])) for name, one in tensors.items()}


def after_quantization(tensor: torch.Tensor, kind: GGMLQuantizationType) -> torch.Tensor:
    """Return a matrix as it is after it was quantised, by the library's own code."""
    return torch.from_numpy(dequantize(quantize(tensor.detach().numpy(), kind), kind))


def _interleaved(tensor: torch.Tensor, heads: int | None) -> np.ndarray:
    array = tensor.detach().numpy()
    if heads is None:
        return array
    rows, columns = array.shape
    halves: Sequence[int] = (heads, 2, rows // heads // 2, columns)
    return np.ascontiguousarray(array.reshape(halves).swapaxes(1, 2).reshape(rows, columns))
