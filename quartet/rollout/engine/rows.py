"""Keys and values of the running requests: one row each, rows 0 .. n-1 without gaps.

A forward pass reads one contiguous view of the rows it runs and copies nothing. When a request leaves, the last row
moves into its place.
"""

from typing import NamedTuple

import torch


class Segment(NamedTuple):
    """Keys and values of some consecutive tokens, each `[layers, kv_heads, tokens, head_dim]`."""

    keys: torch.Tensor
    values: torch.Tensor

    @property
    def num_bytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes

    def part(self, start: int, end: int) -> "Segment":
        """A copy of tokens `start .. end - 1`, so that the rest can be freed."""
        return Segment(self.keys[:, :, start:end].clone(), self.values[:, :, start:end].clone())


class Rows:
    """Two buffers `[layers, rows, kv_heads, max_context, head_dim]`. A head's tokens lie together: attention reads them
    a third faster in bfloat16 than tokens whose heads lie together."""

    def __init__(self, like: list[tuple[torch.Tensor, torch.Tensor]], rows: int, max_context_tokens: int) -> None:
        """`like`: the keys and values `[1, kv_heads, tokens, head_dim]` of each layer, for shape, type and device."""
        keys, values = like[0]
        # Zeros, not empty: masked positions are multiplied by 0, and 0 x NaN would spread.
        self.keys = keys.new_zeros(len(like), rows, keys.shape[1], max_context_tokens, keys.shape[3])
        self.values = values.new_zeros(len(like), rows, values.shape[1], max_context_tokens, values.shape[3])

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` tokens of row `source` over row `target`."""
        for buffer in (self.keys, self.values):
            buffer[:, target, :, :length] = buffer[:, source, :, :length]

    def clear(self, row: int) -> None:
        """Forget a row whose values are not finite, so that they cannot leak into the next request there."""
        for buffer in (self.keys, self.values):
            buffer[:, row].zero_()

    def read(self, row: int, start: int, end: int) -> Segment:
        """A copy of tokens `start .. end - 1`."""
        return Segment(self.keys[:, row, :, start:end].clone(), self.values[:, row, :, start:end].clone())

    def write(self, row: int, start: int, segment: Segment) -> None:
        """Put a segment into a row, from token `start` on."""
        end = start + segment.keys.shape[2]
        self.keys[:, row, :, start:end] = segment.keys
        self.values[:, row, :, start:end] = segment.values
