"""Decoder layers compiled by `torch.compile`: the operations between their matrix products become few kernels."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from transformers import PreTrainedModel

from quartet.train.activation_checkpointing import decoder_layers

RECOMPILE_LIMIT = 64
"""Variants of a layer that are compiled before PyTorch runs further ones uncompiled: with and without gradients, of the
policy, of a reference, of a critic, with and without an adapter. PyTorch's own limit of 8 is too low for them."""


def compile_layers(model: PreTrainedModel) -> None:
    """Compile the layers of the decoder; layers of the same shape share the compiled code.

    Attention must be FlashAttention (`uses_flash`): PyTorch would trace the gathering of branches, and compile it anew
    for each microbatch. With the environment variable `TORCH_COMPILE_DISABLE=1`, PyTorch compiles nothing.
    """
    from torch._dynamo import config  # imports much, and only a GPU needs it

    config.recompile_limit = max(RECOMPILE_LIMIT, config.recompile_limit)
    for layer in decoder_layers(model):
        layer.forward = Compiled(layer.forward)


class Compiled:
    """Compiled forward pass of a layer. A deep copy computes with the copied layer, unlike a copy of a function."""

    def __init__(self, forward: Callable[..., Any], backend: str = "inductor") -> None:
        self._forward, self._backend = forward, backend
        self._run = torch.compile(forward, dynamic=True, backend=backend)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Compiled":
        return Compiled(copy.deepcopy(self._forward, memo), self._backend)
