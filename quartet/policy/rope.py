"""Detection of rotary embeddings whose frequencies depend on the longest sequence of a forward pass.

For some types of rotary embeddings, transformers chooses the frequencies in each pass by the largest position:
`longrope` (Phi-3) has other factors beyond the original length, `dynamic` (NTK) another base beyond the trained length.
The log-probs of a row then depend on the other rows of the pass, and cached keys have other frequencies than later
keys.
"""

from collections.abc import Iterator
from typing import Any

from transformers import PretrainedConfig

from quartet.errors import ConfigError


def refuse_length_dependent_rope(config: PretrainedConfig, max_context_tokens: int) -> None:
    """Raise `ConfigError` if `max_context_tokens` exceeds the sequence length at which the frequencies change."""
    for kind, length in _changes(config):
        if max_context_tokens > length:
            raise ConfigError(
                f"the rotary embedding {kind!r} of {config.model_type} changes all its frequencies for sequences "
                f"longer than {length} tokens, and engine.max_context_tokens = {max_context_tokens}: log-probs would "
                "depend on which sequences are computed together",
                f"set engine.max_context_tokens to at most {length}, or use a model whose rope does not change",
            )


def _changes(config: Any) -> Iterator[tuple[str, int]]:
    """Yield each type of rotary embedding whose frequencies change, with the length beyond which they do."""
    parameters = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    by_layer_type = [value for value in parameters.values() if isinstance(value, dict)]
    for rope in by_layer_type or [parameters]:
        kind = str(rope.get("rope_type", rope.get("type", "default")))
        if "dynamic" in kind:
            yield kind, config.max_position_embeddings
        elif kind in ("longrope", "su"):
            original = getattr(config, "original_max_position_embeddings", None)
            original = original or rope.get("original_max_position_embeddings")
            yield kind, original or config.max_position_embeddings
