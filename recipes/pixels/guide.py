"""Supervision of attention: the position before a location token attends to that location in the picture.

As long as the attention of a model with random weights is spread over the whole picture, the loss of its response says
little about where to look, and small models were not seen to leave that state here.

Source of the idea: Liu et al. 2016, Neural Machine Translation with Supervised Attention (arXiv 1609.04186).
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


class AttentionTargets(NamedTuple):
    """Pairs of positions of a row, one per location token: the first is trained to attend to the second."""

    queries: list[int]
    keys: list[int]


NO_TARGETS = AttentionTargets([], [])


class Guide:
    """The attention of a policy's decoder layer `LAYER`, and its loss against the places of responses."""

    def __init__(self, policy: LoadedPolicy, parts: int) -> None:
        model: Any = policy.model
        first = policy.tokenizer.get_vocab()[location_tokens(parts)[0]]
        self.locations = range(first, first + parts)
        self._weights_BHTT: torch.Tensor | None = None
        self._decoder = model.model.language_model
        self._implementation = self._decoder.config._attn_implementation
        # Other implementations of attention do not return its weights.
        self._decoder.set_attn_implementation("eager")
        self._hook = self._decoder.layers[LAYER].self_attn.register_forward_hook(self._keep)

    def _keep(self, module: Any, arguments: Any, output: Any) -> None:
        self._weights_BHTT = output[1]

    def close(self) -> None:
        """Stop reading the attention, and restore the implementation of attention."""
        self._hook.remove()
        self._decoder.set_attn_implementation(self._implementation)

    def targets(self, example: Example, media: Media) -> AttentionTargets:
        """Return the targets of a response: before each location token, the placeholder whose cell has its place."""
        ids, (_, rows, columns) = example.token_ids, media.grid
        places = [at for at, learned in enumerate(example.learned) if learned and ids[at] in self.locations]
        queries: list[int] = []
        keys: list[int] = []
        for across, down in zip(places[::2], places[1::2], strict=True):
            x, y = ((ids[at] - self.locations.start + 0.5) / len(self.locations) for at in (across, down))
            cell = int(y * (rows // 2)) * (columns // 2) + int(x * (columns // 2))
            queries += [across - 1, down - 1]
            keys += [media.offset + cell] * 2
        return AttentionTargets(queries, keys)

    def loss(self, targets: Sequence[AttentionTargets]) -> torch.Tensor:
        """Return the mean negative logarithm of the attention that the last forward pass gave to the places, in nats.

        `targets` has one entry per row of the batch; 0 if none has a place.
        """
        weights_BHTT = self._weights_BHTT
        assert weights_BHTT is not None, "a forward pass came before"
        rows = [row for row, one in enumerate(targets) for _ in one.queries]
        if not rows:
            return weights_BHTT.new_zeros(())
        queries = [query for one in targets for query in one.queries]
        keys = [key for one in targets for key in one.keys]
        return -(weights_BHTT[rows, :HEADS, queries, keys].mean(-1) + SMALLEST).log().mean()
