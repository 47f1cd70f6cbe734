"""Interface of a forward pass as the scheduler sees it: each row grows by some tokens and returns its next logits."""

from typing import NamedTuple, Protocol

import torch

from quartet.engine.rows import Rows


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
