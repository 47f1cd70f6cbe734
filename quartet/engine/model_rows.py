"""Make the rows (KV cache) for a model, and reject models that need another kind of cache."""

import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from quartet.engine.rows import Rows
from quartet.errors import ConfigError, SetupError
from quartet.policy.rope import refuse_length_dependent_rope

PLAIN_LAYERS = {DynamicLayer, DynamicSlidingWindowLayer}
"""Types of cache layers that hold keys and values only; subclasses may hold more and are not accepted."""


@torch.inference_mode()
def make_rows(model: PreTrainedModel, max_slots: int, max_context_tokens: int) -> Rows:
    """Return rows in the shapes of the cache that `transformers` makes for the model.

    Raises `SetupError` if that cache holds something other than keys and values, and `ConfigError` if the shapes of its
    layers differ.
    """
    ids_11 = torch.zeros(1, 1, dtype=torch.long, device=model.device)
    cache = getattr(model(input_ids=ids_11, use_cache=True), "past_key_values", None)
    layers = getattr(cache, "layers", [])
    kinds = {type(layer) for layer in layers}
    if not layers or kinds - PLAIN_LAYERS or not all(layer.is_initialized for layer in layers):
        found = ", ".join(sorted(kind.__name__ for kind in kinds)) or "none with layers"
        raise SetupError(
            f"the torch engine cannot run {model.config.model_type}: its cache holds data other than the keys "
            f"and values of every layer ({found})",
            "use a model with plain attention in every layer, or another engine",
        )
    like = [(layer.keys, layer.values) for layer in layers]
    if len({(keys.shape, values.shape) for keys, values in like}) > 1:
        raise ConfigError(
            f"the torch engine cannot run {model.config.model_type}: shapes of keys or values differ between layers",
            "use a model whose layers are alike, or another engine",
        )
    with torch.inference_mode(mode=False):
        return Rows(like, max_slots, max_context_tokens)


def refuse_unsupported(config: PretrainedConfig, max_context_tokens: int) -> None:
    """Raise `ConfigError` for a model that the engine cannot compute correctly.

    Such a model has layers without full attention over the context, or its log-probs depend on the lengths of the other
    sequences in a forward pass.
    """
    refuse_length_dependent_rope(config, max_context_tokens)
    layer_types = set(getattr(config, "layer_types", None) or ["sliding_attention"])
    if unknown := layer_types - {"full_attention", "sliding_attention"}:
        raise ConfigError(
            f"the torch engine cannot run {config.model_type}: it has layers of type {', '.join(sorted(unknown))}",
            "use a model with full attention only, or another engine",
        )
    window = getattr(config, "sliding_window", None) if "sliding_attention" in layer_types else None
    if window and window < max_context_tokens:
        raise ConfigError(
            f"the model attends to the last {window} tokens only, less than engine.max_context_tokens = "
            f"{max_context_tokens}",
            f"set engine.max_context_tokens to at most {window}",
        )
