"""Forward pass as the scheduler sees it: each row grows by some tokens and returns its next logits.

`DenseForward` runs the architectures it knows by hand, `CacheForward` any causal language model of `transformers`
through its cache interface. The model alone decides which one is used. Neither serves before it agrees with the model's
own pass.
"""

import logging
from typing import NamedTuple, Protocol

import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from quartet.engine.rows import Rows
from quartet.errors import ConfigError, QuartetError, SetupError
from quartet.policy.rope import refuse_length_dependent_rope

log = logging.getLogger(__name__)
PLAIN_LAYERS = {DynamicLayer, DynamicSlidingWindowLayer}
"""Cache layers that hold keys and values only; their subclasses may hold more."""


class Span(NamedTuple):
    """New tokens of one row. The spans of a pass belong to the rows 0, 1, 2, ... in this order."""

    start: int
    """Number of tokens that the row already holds."""
    token_ids: list[int]
    """At least one."""


class Forward(Protocol):
    """One model and the rows of its running requests."""

    vocab_size: int
    rows: Rows

    def extend(self, spans: list[Span]) -> torch.Tensor:
        """Append `spans[i]` to row i. Return logits `[num_spans, vocab]` after the last token of each."""
        ...

    def weights_changed(self) -> None:
        """Renew everything derived from the model's weights after they have changed."""
        ...


def make_forward(model: PreTrainedModel, max_slots: int, max_context_tokens: int) -> Forward:
    """Return the fastest forward pass for `model`. Raises `ConfigError` or `SetupError` if neither can run it."""
    refuse_unsupported(model.config.get_text_config(), max_context_tokens)
    model.eval()
    return _by_hand(model, max_slots, max_context_tokens) or _through_cache(model, max_slots, max_context_tokens)


def _by_hand(model: PreTrainedModel, max_slots: int, max_context_tokens: int) -> Forward | None:
    from quartet.engine.agreement import START_PROBE_TOKENS, disagreement, own_pass
    from quartet.engine.dense_forward import DenseForward, is_dense

    if not is_dense(model):
        return None
    forward = DenseForward(model, max_slots, max_context_tokens)
    if what := disagreement(forward, own_pass(model, forward, START_PROBE_TOKENS)):
        log.warning("falling back to the slower forward pass through transformers' cache: %s", what)
        return None
    return forward


def _through_cache(model: PreTrainedModel, max_slots: int, max_context_tokens: int) -> Forward:
    from quartet.engine.agreement import START_PROBE_TOKENS, disagreement, own_pass
    from quartet.engine.cache_forward import CacheForward

    forward = CacheForward(model, max_slots, max_context_tokens)
    try:
        what = disagreement(forward, own_pass(model, forward, START_PROBE_TOKENS))
    except QuartetError:
        raise
    except Exception as error:  # a model's own code may raise anything
        raise SetupError(
            f"the torch engine cannot run {model.config.model_type}: its code fails with our masks and positions "
            f"({type(error).__name__}: {error})",
            "use another model or another engine",
        ) from error
    if what:
        raise ConfigError(
            f"the torch engine cannot run {model.config.model_type}: {what}",
            "a gap of nan means damaged weights; otherwise use a model class of transformers itself, or another engine",
        )
    return forward


@torch.inference_mode()
def make_rows(model: PreTrainedModel, max_slots: int, max_context_tokens: int) -> Rows:
    """Return rows in the shapes that the model itself uses.

    Raises `SetupError` if it keeps something else than keys and values, `ConfigError` if its layers differ.
    """
    ids_11 = torch.zeros(1, 1, dtype=torch.long, device=model.device)
    cache = getattr(model(input_ids=ids_11, use_cache=True), "past_key_values", None)
    layers = getattr(cache, "layers", [])
    kinds = {type(layer) for layer in layers}
    if not layers or kinds - PLAIN_LAYERS or not all(layer.is_initialized for layer in layers):
        found = ", ".join(sorted(kind.__name__ for kind in kinds)) or "none with layers"
        raise SetupError(
            f"the torch engine cannot run {model.config.model_type}: between tokens it keeps something else than the "
            f"keys and values of every layer (its cache: {found})",
            "use a model with plain attention in every layer, or another engine",
        )
    like = [(layer.keys, layer.values) for layer in layers]
    if len({(keys.shape, values.shape) for keys, values in like}) > 1:
        raise ConfigError(
            f"the torch engine cannot run {model.config.model_type}: its layers keep keys of different shapes",
            "use a model whose layers are alike, or another engine",
        )
    with torch.inference_mode(mode=False):
        return Rows(like, max_slots, max_context_tokens)


def refuse_unsupported(config: PretrainedConfig, max_context_tokens: int) -> None:
    """Raise `ConfigError` for a model whose layers keep something other than all keys and values.

    Also refuses models whose log-probs depend on the other sequences of a call.
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
