"""Activation checkpointing: decoder layers keep only their input, and are computed again in the backward pass."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from quartet.errors import ConfigError


def checkpoint_layers(model: PreTrainedModel) -> None:
    """Let each layer of `model` keep only its input between forward and backward pass.

    Raises `ConfigError` if the model's layers do not support it.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise ConfigError(
            f"train.activation_checkpointing: the layers of {type(model).__name__} do not support it",
            "set train.activation_checkpointing=false",
        )
    contexts = partial(_contexts, model.get_decoder().config)
    for layer in layers:
        # `transformers` itself checkpoints in training mode only, in which some layers drop out in their own `forward`.
        layer.forward = partial(_checkpointed, layer.forward, contexts)


def decoder_layers(model: PreTrainedModel) -> list[GradientCheckpointingLayer]:
    """Return the layers of a model's decoder; an empty list for a model whose layers `transformers` does not mark."""
    return [module for module in model.get_decoder().modules() if isinstance(module, GradientCheckpointingLayer)]


def _checkpointed(forward: Callable[..., Any], contexts: Callable[[], Any], *args: Any, **kwargs: Any) -> Any:
    return checkpoint(partial(forward, **kwargs), *args, use_reentrant=False, context_fn=contexts)


def _contexts(config: Any) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Return the contexts of a layer's first and second pass. Both use the attention that is set in the first pass."""
    return nullcontext(), _attention(config, config._attn_implementation)


@contextmanager
def _attention(config: Any, name: str) -> Iterator[None]:
    before, config._attn_implementation = config._attn_implementation, name
    try:
        yield
    finally:
        config._attn_implementation = before
