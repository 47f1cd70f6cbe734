"""Inputs of a pass that decodes: one static tensor on the device, filled by one copy per pass.

A CUDA graph repeats its kernels with the same arguments, so this tensor holds all values that differ between passes:
ids, rows and positions of the new tokens, and the addresses of keys and values. The buffers may therefore grow, shrink
or be set aside without a new graph.
"""

import torch

from quartet.engine.forward import Span
from quartet.engine.rows import Rows

TABLE = 5
"""Numbers before the tokens': two addresses and three distances, see `DecodeInputs.table`."""
PADDING = -1
"""Position of padding: it is written to no row, and attends to nothing."""


class DecodeInputs:
    """Inputs of a pass over N tokens, padding included."""

    def __init__(self, num_tokens: int, device: torch.device) -> None:
        self.num_tokens = num_tokens
        self._whole = torch.zeros(TABLE + 3 * num_tokens, dtype=torch.int64, device=device)
        self.table = self._whole[:TABLE]
        """Addresses of keys and of values; elements from one layer, row and key-value head to the next."""
        self.ids_N, self.rows_N, self.positions_N = self._whole[TABLE:].view(3, num_tokens)

    def fill(self, spans: list[Span], rows: Rows) -> None:
        """Copy spans of one token each, and the place of `rows`, to the device. Does not wait for the copy."""
        keys, values, padding = rows.keys, rows.values, self.num_tokens - len(spans)
        assert keys.stride() == values.stride() and keys.is_contiguous() and values.is_contiguous()
        numbers = [keys.data_ptr(), values.data_ptr(), *keys.stride()[:3]]
        numbers += [span.token_ids[0] for span in spans] + [0] * padding
        numbers += list(range(len(spans))) + [0] * padding
        numbers += [span.start for span in spans] + [PADDING] * padding
        # Pinned, so that the copy needs no synchronisation; PyTorch reuses the memory only after the copy.
        pinned = self._whole.is_cuda
        self._whole.copy_(torch.tensor(numbers, dtype=torch.int64, pin_memory=pinned), non_blocking=pinned)
