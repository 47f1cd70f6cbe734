"""A model of the architecture Llama as a GGUF file, which llama.cpp loads, in the precision of the other contenders."""

from pathlib import Path
from typing import Any

import gguf
import torch
from transformers import PreTrainedModel

from quartet.policy.tokenizer_files import load_tokenizer

FILE_TYPES = {
    torch.float32: (gguf.LlamaFileType.ALL_F32, gguf.GGMLQuantizationType.F32),
    torch.bfloat16: (gguf.LlamaFileType.MOSTLY_BF16, gguf.GGMLQuantizationType.BF16),
}


def write(model: PreTrainedModel, folder: Path, file: Path) -> bool:
    """Write the model, with the tokenizer in `folder`. Return False for another architecture, and write nothing.

    Vectors stay in float32, as llama.cpp needs them.
    """
    config: Any = model.config
    if config.model_type != "llama":
        return False
    file_type, matrix_type = FILE_TYPES[model.dtype]
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_file_type(file_type)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer, folder, config.vocab_size)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        written = names.get_name(name, try_suffixes=(".weight",))
        assert written is not None, f"GGUF has no name for {name}"
        kind = matrix_type if tensor.dim() > 1 else gguf.GGMLQuantizationType.F32
        values = _interleaved(name, tensor.float(), config).numpy()
        writer.add_tensor(written, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return True


def _add_tokenizer(writer: gguf.GGUFWriter, folder: Path, size: int) -> None:
    """Add the words by their ids. Requests have token ids, so any rule that splits a text into words will do."""
    tokenizer = load_tokenizer(folder)
    special = set(tokenizer.all_special_ids)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    words = tokenizer.convert_ids_to_tokens(list(range(size)))
    writer.add_token_list([word or f"[unused {number}]" for number, word in enumerate(words)])
    kinds = (gguf.TokenType.CONTROL if number in special else gguf.TokenType.NORMAL for number in range(size))
    writer.add_token_types(list(kinds))
    gguf.SpecialVocab(folder, load_merges=True).add_to_gguf(writer, quiet=True)


def _interleaved(name: str, matrix: torch.Tensor, config: Any) -> torch.Tensor:
    """Return queries' and keys' projections with the rotated pairs side by side, as llama.cpp has them."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for part, count in heads.items():
        if f".{part}." in name:
            return matrix.unflatten(0, (count, 2, -1)).transpose(1, 2).flatten(0, 2).contiguous()
    return matrix
