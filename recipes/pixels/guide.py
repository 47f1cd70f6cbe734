"""Supervision of attention: the token of a place attends to that place in the picture.

Without it, a small model that begins from random weights does not come to see here: as long as attention is spread over
the whole picture, the loss says little about where to look, and as long as nothing is looked at, it says little about
what a place looks like. Source of the idea: Liu et al. 2016, Neural Machine Translation with Supervised Attention
(arXiv 1609.04186).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from quartet.actions.format.location_tokens import location_tokens
from quartet.policy.examples import Example
from quartet.policy.load import LoadedPolicy
from quartet.types import Media

LAYER = 1
"""Decoder layer whose attention is supervised; the layers above it read what it found."""
HEADS = 2
"""Number of its heads that are supervised."""
SMALLEST = 1e-6
"""Added to a share of attention before its logarithm, which bounds the gradient."""


class Looks(NamedTuple):
    """Which position of a row should attend to which position, one entry per location token."""

    queries: list[int]
    keys: list[int]


NOWHERE = Looks([], [])


class Guide:
    """The attention of a policy's decoder layer `LAYER`, and its loss against the places of responses."""

    def __init__(self, policy: LoadedPolicy, parts: int) -> None:
        model: Any = policy.model
        first = policy.tokenizer.get_vocab()[location_tokens(parts)[0]]
        self.locations = range(first, first + parts)
        self._weights_BHTT: torch.Tensor | None = None
        self._decoder = model.model.language_model
        # Other implementations of attention do not return its weights.
        self._decoder.set_attn_implementation("eager")
        self._hook = self._decoder.layers[LAYER].self_attn.register_forward_hook(self._keep)

    def _keep(self, module: Any, arguments: Any, output: Any) -> None:
        self._weights_BHTT = output[1]

    def close(self) -> None:
        """Stop reading the attention, and let the faster implementation compute it again."""
        self._hook.remove()
        self._decoder.set_attn_implementation("sdpa")

    def looks(self, example: Example, media: Media) -> Looks:
        """Return where a response looks before each location token: at the placeholder whose cell has its place."""
        ids, (_, rows, columns) = example.token_ids, media.grid
        places = [at for at, learned in enumerate(example.learned) if learned and ids[at] in self.locations]
        queries: list[int] = []
        keys: list[int] = []
        for across, down in zip(places[::2], places[1::2], strict=True):
            x, y = ((ids[at] - self.locations.start + 0.5) / len(self.locations) for at in (across, down))
            cell = int(y * (rows // 2)) * (columns // 2) + int(x * (columns // 2))
            queries += [across - 1, down - 1]
            keys += [media.offset + cell] * 2
        return Looks(queries, keys)

    def loss(self, looks: Sequence[Looks]) -> torch.Tensor:
        """Return the mean negative logarithm of the attention that the last forward pass gave to the places, in nats.

        `looks` has one entry per row of the batch; 0 if none has a place.
        """
        weights_BHTT = self._weights_BHTT
        assert weights_BHTT is not None, "a forward pass came before"
        rows = [row for row, look in enumerate(looks) for _ in look.queries]
        if not rows:
            return weights_BHTT.new_zeros(())
        queries = [query for look in looks for query in look.queries]
        keys = [key for look in looks for key in look.keys]
        return -(weights_BHTT[rows, :HEADS, queries, keys].mean(-1) + SMALLEST).log().mean()
