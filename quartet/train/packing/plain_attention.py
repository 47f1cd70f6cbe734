"""Refusal of models whose attention is another one than the kernels for packed rows compute."""

from collections.abc import Mapping
from typing import Any

import torch

from quartet.errors import ConfigError

UNSUPPORTED = ("dropout", "softcap", "s_aux", "sliding_window")
"""Arguments of models whose attention differs from the one computed for packed rows."""


def require_plain(module: torch.nn.Module, arguments: Mapping[str, Any]) -> None:
    """Raise `ConfigError` if a layer passes an argument that changes its attention."""
    given = {name: arguments.get(name) for name in UNSUPPORTED}
    if other := [name for name, value in given.items() if isinstance(value, torch.Tensor) or value]:
        raise ConfigError(
            f"{type(module).__name__} passes {other[0]}, which attention over packed rows lacks",
            "train a model whose layers all have full attention without it, such as Llama or Qwen3",
        )
