"""Interface of the engine's forward pass: append new tokens to rows and compute the logits after them."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch

from quartet.engine.rows import Rows


class Span(NamedTuple):
    """New tokens of one row (the KV cache of one request). Span i of a pass belongs to row i."""

    start: int
    """Number of tokens that the row already holds."""
    token_ids: list[int]
    """Ids of the new tokens, at least one."""
    positions_3T: np.ndarray | None = None
    """Positions (time, height, width) of the new tokens, for a model that reads pictures; None if they are the tokens'
    places in the row."""
    features: Sequence[torch.Tensor] = ()
    """Features `[K, n, D]` of the placeholders among the new tokens, in their order."""


class Forward(Protocol):
    """One model and the rows of its running requests."""

    vocab_size: int
    rows: Rows

    def extend(self, spans: list[Span]) -> torch.Tensor:
        """Append `spans[i]` to row i. Return the logits `[num_spans, vocab]` after the last token of each span,
        which are valid until the next call."""
        ...

    def weights_changed(self) -> None:
        """Renew all copies of the model's weights after the weights have changed."""
        ...
