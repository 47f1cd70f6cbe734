"""Decoder layers compiled by `torch.compile`, so that what lies between their matrix products becomes few kernels."""

from typing import Any

import torch
from transformers import PreTrainedModel


def compile_layers(model: PreTrainedModel) -> None:
    """Compile the layers of `model` if it is on a GPU; all layers share the compiled code.

    The first passes take longer, since they compile. With the environment variable `TORCH_COMPILE_DISABLE=1`, PyTorch
    compiles nothing.
    """
    if model.device.type != "cuda":
        return
    decoder: Any = model.get_decoder()
    for layer in decoder.layers:
        layer.forward = torch.compile(layer.forward, dynamic=True)
