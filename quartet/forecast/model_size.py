"""Size of a dense decoder: parameters, and bytes of cached keys and values per token."""

import json
from pathlib import Path
from typing import Any

from msgspec import Struct

from quartet.errors import ConfigError

BYTES_PER_VALUE = 2
"""Bytes of a weight, key or value in bfloat16."""
_NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")


class ModelSize(Struct, frozen=True, kw_only=True):
    """Size of a model."""

    parameters: float
    kv_bytes_per_token: float
    """Bytes of the keys and values of one token, over all layers."""

    @property
    def weight_bytes(self) -> float:
        return BYTES_PER_VALUE * self.parameters


def read_model_size(folder: Path) -> ModelSize:
    """Return the size of the model in a folder, from its config.json.

    Norms and biases are neglected, and so is the vision tower of a model that reads pictures. Raises `ConfigError` if
    the folder has no config.json, and for a mixture of experts or another architecture whose configuration lacks a
    needed value.
    """
    file = folder / "config.json"
    if not file.is_file():
        raise ConfigError(
            f"cannot compute the size of the model: {file} is not there",
            "make or download the model, or give the size with --parameters and --kv-bytes-per-token",
        )
    config: dict[str, Any] = json.loads(file.read_text())
    # A model that reads pictures may say beside its text model whether that one's embeddings are tied.
    tied = {"tie_word_embeddings": config.get("tie_word_embeddings", False)}
    described = tied | (config.get("text_config") or config)
    missing = [name for name in _NEEDED if name not in described]
    if missing or any("experts" in name for name in described):
        reason = f"it lacks {', '.join(missing)}" if missing else "it is a mixture of experts"
        raise ConfigError(
            f"cannot compute the size of the model from {file}: {reason}",
            "give the size with --parameters and --kv-bytes-per-token",
        )
    return _size(described)


def _size(described: dict[str, Any]) -> ModelSize:
    hidden, layers, heads = (described[name] for name in _NEEDED[:3])
    head_dim = described.get("head_dim") or hidden // heads
    kv_heads = described.get("num_key_value_heads") or heads
    attention = 2 * hidden * head_dim * (heads + kv_heads)  # queries and output; keys and values
    feed_forward = 3 * hidden * described["intermediate_size"]
    embeddings = described["vocab_size"] * hidden * (1 if described.get("tie_word_embeddings") else 2)
    return ModelSize(
        parameters=layers * (attention + feed_forward) + embeddings,
        kv_bytes_per_token=2 * layers * kv_heads * head_dim * BYTES_PER_VALUE,
    )
