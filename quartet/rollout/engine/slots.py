"""Key/value cache with one row per running request, behind the `Cache` interface of `transformers`.

Running requests occupy rows 0 .. n-1 without gaps, so a decode step reads one contiguous view `[:n, :, :length]` of
each layer and copies nothing. When a request leaves, the last row moves into its place.
"""

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


class SlotView:
    """Which rows and positions the next forward pass writes and reads; shared by all layers."""

    def __init__(self) -> None:
        self.first_row = 0
        self.positions_N: torch.Tensor | None = None
        """Decode: where each row's new token goes. None: prefill of whole prompts from position 0."""
        self.length = 0
        """Decode: how many positions the attention reads."""

    def prefill(self, first_row: int) -> None:
        self.first_row, self.positions_N = first_row, None

    def decode(self, positions_N: torch.Tensor, length: int) -> None:
        self.first_row, self.positions_N, self.length = 0, positions_N, length
        self.rows_N = torch.arange(len(positions_N), device=positions_N.device)


class SlotLayer(CacheLayerMixin):
    """Keys and values of one layer, each `[slots, kv_heads, max_context, head_dim]`, allocated at the first pass."""

    is_compileable = False
    is_sliding = False

    def __init__(self, slots: int, max_context_tokens: int, view: SlotView) -> None:
        super().__init__()
        self._slots, self._max_context_tokens, self._view = slots, max_context_tokens, view

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys = self._allocate(key_states)
        self.values = self._allocate(value_states)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the new states `[n, kv_heads, new_tokens, head_dim]` and return those to attend to."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        view, (num_rows, _, num_new, _) = self._view, key_states.shape
        if view.positions_N is None:
            rows = slice(view.first_row, view.first_row + num_rows)
            self.keys[rows, :, :num_new] = key_states
            self.values[rows, :, :num_new] = value_states
            return key_states, value_states
        self.keys[view.rows_N, :, view.positions_N] = key_states[:, :, 0]
        self.values[view.rows_N, :, view.positions_N] = value_states[:, :, 0]
        return self.keys[:num_rows, :, : view.length], self.values[:num_rows, :, : view.length]

    def get_seq_length(self) -> int:
        """0: every prefill starts a sequence, and decode passes its positions and mask itself."""
        return 0

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return query_length, 0

    def get_max_length(self) -> int:
        return self._max_context_tokens

    def _allocate(self, like: torch.Tensor) -> torch.Tensor:
        # Zeros, not empty: masked positions are multiplied by 0, and 0 x NaN would spread.
        return like.new_zeros(self._slots, like.shape[1], self._max_context_tokens, like.shape[3])


class SlotCache(Cache):
    """One `SlotLayer` per layer of the model."""

    def __init__(self, num_layers: int, slots: int, max_context_tokens: int) -> None:
        self.view = SlotView()
        super().__init__(layers=[SlotLayer(slots, max_context_tokens, self.view) for _ in range(num_layers)])

    def move_row(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` positions of row `source` over row `target`."""
        for buffer in self._buffers():
            buffer[target, :, :length] = buffer[source, :, :length]

    def clear_row(self, row: int) -> None:
        """Forget a row whose values are not finite, so that they cannot leak into the next request there."""
        for buffer in self._buffers():
            buffer[row].zero_()

    def _buffers(self) -> list[torch.Tensor]:
        layers = [layer for layer in self.layers if isinstance(layer, SlotLayer) and layer.is_initialized]
        return [buffer for layer in layers for buffer in (layer.keys, layer.values) if buffer is not None]
