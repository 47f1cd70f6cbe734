"""Parts of the benchmarks on a GPU: its data sheet, and an untrained Qwen3 on it."""

import re
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from quartet.errors import SetupError
from quartet.forecast.gpus import GPUS, GpuKind

VOCABULARY = 151_936
SIZES = {"0.6B": (1024, 3072, 28), "1.5B": (2048, 6144, 24), "1.7B": (2048, 6144, 28)}
"""Hidden size, size of the MLP, and layers. 0.6B and 1.7B are those of Qwen3; 1.5B is 1.7B with fewer layers."""
OTHER_VARIANTS = re.compile("PCIe|NVL|MIG|40GB", re.IGNORECASE)
"""Parts of the names of GPUs whose peaks differ from those in `quartet.forecast.gpus`."""


def data_sheet() -> tuple[str, GpuKind]:
    """Return name and peaks of the GPU. Raises `SetupError` if there is none, or one whose peaks are not known."""
    if not torch.cuda.is_available():
        raise SetupError("this benchmark computes on a GPU, and torch finds none", "run it on a machine with a GPU")
    name = torch.cuda.get_device_name()
    kinds = [kind for kind in GPUS if re.search(rf"\b{kind}\b", name) and not OTHER_VARIANTS.search(name)]
    if not kinds:
        raise SetupError(f"the peaks of {name} are not known", "add its data sheet to quartet/forecast/gpus.py")
    return name, GPUS[kinds[0]]


def untrained_qwen3(size: str, dtype: torch.dtype, max_tokens: int) -> Qwen3ForCausalLM:
    """Return a Qwen3 with random weights on the GPU, for sequences of at most `max_tokens` tokens."""
    hidden, mlp, layers = SIZES[size]
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=mlp,
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=max_tokens,
        tie_word_embeddings=True,
        dtype=dtype,
    )
    torch.manual_seed(0)
    with torch.device("cuda"):
        model: Any = Qwen3ForCausalLM(config)
        return model.to(dtype).eval()
