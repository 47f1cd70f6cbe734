"""Forward pass of any causal language model of `transformers`, with the KV cache in `Rows`.

`transformers` reads and writes the rows through its `Cache` interface. Rows with one new token run in one pass and rows
with several in another, which keeps the padding small.
"""

from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from quartet.engine.forward import Span
from quartet.engine.model_rows import make_rows
from quartet.engine.rows import Rows
from quartet.policy.kind.find import vision_kind


class CacheForward:
    """`Forward` through the `Cache` interface. Shapes: N rows in a pass, T tokens in the longest span, L in the longest
    row."""

    def __init__(self, model: PreTrainedModel, max_slots: int, max_context_tokens: int) -> None:
        self.model, self._kind = model, vision_kind(model)
        embedding: Any = model.get_input_embeddings()
        self.vocab_size: int = embedding.num_embeddings
        self.rows = make_rows(model, max_slots, max_context_tokens)
        self._keys_L = torch.arange(max_context_tokens, device=model.device)
        self._cache = RowCache(self.rows)

    def weights_changed(self) -> None:
        """Do nothing: the model's own parameters are used directly."""

    def extend(self, spans: list[Span]) -> torch.Tensor:
        self.rows.reserve(len(spans), max(span.start + len(span.token_ids) for span in spans))
        logits_SV: torch.Tensor | None = None
        single = [index for index, span in enumerate(spans) if len(span.token_ids) == 1]
        longer = [index for index, span in enumerate(spans) if len(span.token_ids) > 1]
        for part in filter(None, (single, longer)):
            logits_NV = self._pass(part, [spans[index] for index in part])
            if logits_SV is None:
                logits_SV = logits_NV.new_empty(len(spans), logits_NV.shape[-1])
            logits_SV[part] = logits_NV
        assert logits_SV is not None
        return logits_SV

    def _pass(self, rows: list[int], spans: list[Span]) -> torch.Tensor:
        device = self.model.device
        ids = [torch.tensor(span.token_ids, device="cpu") for span in spans]
        ids_NT = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_side="left").to(device)
        starts_N1, lengths_N1 = torch.tensor([[s.start, len(s.token_ids)] for s in spans], device=device).split(1, 1)
        # Padding is on the left, so that the last logits are those of every row. It repeats the first position of its
        # row, and is never stored.
        offsets_NT = self._keys_L[: ids_NT.shape[1]] - (ids_NT.shape[1] - lengths_N1)
        positions_NT = starts_N1 + offsets_NT.clamp(min=0)
        length = int(positions_NT.max()) + 1
        hidden_NTL = self._keys_L[:length] > positions_NT.unsqueeze(-1)
        mask_NTL = torch.zeros(hidden_NTL.shape, dtype=self.model.dtype, device=device)
        mask_NTL.masked_fill_(hidden_NTL, torch.finfo(self.model.dtype).min)
        self._cache.view.set(rows, positions_NT, offsets_NT >= 0, length)
        logits_N1V = self.model(
            input_ids=ids_NT,
            position_ids=self._rotary_positions(spans, positions_NT),
            attention_mask=mask_NTL.unsqueeze(1),
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
            **self._pictures(spans),
        ).logits
        return logits_N1V[:, -1]

    def _rotary_positions(self, spans: list[Span], positions_NT: torch.Tensor) -> torch.Tensor:
        """Return the positions for rotary embeddings: `[3, N, T]` for a model that reads pictures, else the places in
        the rows."""
        found = [span.positions_3T for span in spans if span.positions_3T is not None]
        if not found:
            return positions_NT
        longest = positions_NT.shape[1]
        padded = [np.pad(own_3T, ((0, 0), (longest - own_3T.shape[1], 0)), mode="edge") for own_3T in found]
        return torch.from_numpy(np.stack(padded, axis=1)).to(positions_NT.device)

    def _pictures(self, spans: list[Span]) -> dict[str, Any]:
        """Return the arguments that give the model the features of the placeholders among the new tokens."""
        features = [one for span in spans for one in span.features]
        return self._kind.arguments(features) if self._kind and features else {}


class RowView:
    """Rows and positions that the next forward pass writes and reads, shared by all layers."""

    def set(self, rows: list[int], positions_NT: torch.Tensor, real_NT: torch.Tensor, length: int) -> None:
        device = positions_NT.device
        first, end = rows[0], rows[-1] + 1
        together = end - first == len(rows)
        self.read: slice | torch.Tensor = slice(first, end) if together else torch.tensor(rows, device=device)
        self.real_NT, self.length = real_NT, length
        self.rows_R = torch.tensor(rows, device=device).unsqueeze(1).expand_as(positions_NT)[real_NT]
        self.positions_R = positions_NT[real_NT]


class RowLayer(CacheLayerMixin):
    """Cache layer over one layer of `Rows`."""

    is_compileable = False
    is_sliding = False

    def __init__(self, rows: Rows, layer: int, view: RowView) -> None:
        super().__init__()
        self._rows, self._layer, self._view = rows, layer, view
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None: ...

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the new keys and values `[N, kv_heads, T, head_dim]`. Return the keys and values to attend to."""
        view = self._view
        read = []
        for buffers, states in ((self._rows.keys, key_states), (self._rows.values, value_states)):
            buffer = buffers[self._layer]
            buffer[view.rows_R, :, view.positions_R] = states.transpose(1, 2)[view.real_NT]
            read.append(buffer[view.read, :, : view.length])
        return read[0], read[1]

    def get_seq_length(self) -> int:
        """Return 0, since positions and mask are passed with every call."""
        return 0

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return query_length, 0

    def get_max_length(self) -> int:
        return self._rows.max_context_tokens


class RowCache(Cache):
    """Cache with one `RowLayer` per layer of the model."""

    def __init__(self, rows: Rows) -> None:
        self.view = RowView()
        super().__init__(layers=[RowLayer(rows, layer, self.view) for layer in range(len(rows.keys))])
