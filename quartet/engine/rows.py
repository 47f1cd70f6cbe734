"""KV cache of the running requests: n requests have one row each, rows 0 to n - 1.

A forward pass reads one contiguous view of these rows and copies nothing. When a request ends, the last row is moved to
the freed place.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

STEP_ROWS, STEP_TOKENS = 4, 256
"""Steps in which the buffers grow, since each growth copies all rows."""


class Segment(NamedTuple):
    """Keys and values of consecutive tokens, each `[layers, kv_heads, tokens, head_dim]`."""

    keys: torch.Tensor
    values: torch.Tensor

    @property
    def num_bytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes

    def part(self, start: int, end: int) -> "Segment":
        """Return a copy of the tokens from `start` to `end - 1`, so that the rest can be freed."""
        return Segment(self.keys[:, :, start:end].clone(), self.values[:, :, start:end].clone())


class Rows:
    """Two buffers `[layers, rows, kv_heads, capacity, head_dim]`, for keys and values.

    The tokens of a head are contiguous in memory; in bfloat16, attention reads them a third faster than if the heads of
    a token were contiguous. All rows have the same capacity, which follows the longest row in steps. The number of rows
    changes in steps too.
    """

    def __init__(self, like: list[tuple[torch.Tensor, torch.Tensor]], rows: int, max_context_tokens: int) -> None:
        """Make empty buffers with the heads, dtype and device of `like`, which holds keys and values
        `[1, kv_heads, tokens, head_dim]` of each layer."""
        self.max_rows, self.max_context_tokens = rows, max_context_tokens
        keys, values = like[0]
        # Zeros, not empty: masked positions are multiplied by 0, and 0 x NaN would spread.
        self.keys = keys.new_zeros(len(like), 1, keys.shape[1], 0, keys.shape[3])
        self.values = values.new_zeros(len(like), 1, values.shape[1], 0, values.shape[3])

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Use empty rows inside the block, and restore the rows of the running requests after it."""
        keys, values = self.keys, self.values
        self.keys, self.values = _resized(keys[:, :1], 1, 0), _resized(values[:, :1], 1, 0)
        try:
            yield
        finally:
            self.keys, self.values = keys, values

    def reserve(self, rows: int, length: int) -> None:
        """Grow the buffers to at least `rows` rows with room for `length` tokens each; never shrink them."""
        if rows > self.keys.shape[1] or length > self.keys.shape[3]:
            self._resize(max(rows, self.keys.shape[1]), max(length, self.keys.shape[3]))

    def fit(self, rows: int, length: int) -> None:
        """Make room for `rows` rows of up to `length` tokens.

        Unused memory is freed if the buffers must grow anyway, or if less than half of a row's capacity is needed.
        """
        lacks = rows > self.keys.shape[1] or length > self.keys.shape[3]
        if lacks or self._capacity(2 * length) < self.keys.shape[3]:
            self._resize(rows, length)

    def num_bytes(self, rows: int, length: int) -> int:
        """Return the bytes that `fit` allocates; during a resize the old buffers are in memory too."""
        tokens = self._num_rows(rows) * self._capacity(length)
        return tokens * sum(
            buffer.shape[0] * buffer.shape[2] * buffer.shape[4] * buffer.element_size()
            for buffer in (self.keys, self.values)
        )

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` tokens of row `source` to row `target`."""
        for buffer in (self.keys, self.values):
            buffer[:, target, :, :length] = buffer[:, source, :, :length]

    def clear(self, row: int) -> None:
        """Set a row with values that are not finite to zero, so that they cannot affect the row's next request."""
        for buffer in (self.keys, self.values):
            buffer[:, row].zero_()

    def read(self, row: int, start: int, end: int) -> Segment:
        """Return a copy of a row's tokens from `start` to `end - 1`."""
        return Segment(self.keys[:, row, :, start:end].clone(), self.values[:, row, :, start:end].clone())

    def write(self, row: int, start: int, segment: Segment) -> None:
        """Write a segment into a row, from token `start` on."""
        end = start + segment.keys.shape[2]
        self.reserve(row + 1, end)
        self.keys[:, row, :, start:end] = segment.keys
        self.values[:, row, :, start:end] = segment.values

    def _resize(self, rows: int, length: int) -> None:
        rows, capacity = self._num_rows(rows), self._capacity(length)
        # In two statements, so that the old keys are freed before the new values are allocated.
        self.keys = _resized(self.keys, rows, capacity)
        self.values = _resized(self.values, rows, capacity)

    def _num_rows(self, rows: int) -> int:
        return rows if rows < STEP_ROWS else min(-(-rows // STEP_ROWS) * STEP_ROWS, self.max_rows)

    def _capacity(self, length: int) -> int:
        return min(-(-length // STEP_TOKENS) * STEP_TOKENS, self.max_context_tokens)


def _resized(buffer: torch.Tensor, rows: int, capacity: int) -> torch.Tensor:
    layers, _, kv_heads, _, head_dim = buffer.shape
    resized = buffer.new_zeros(layers, rows, kv_heads, capacity, head_dim)
    kept = buffer[:, :rows, :, :capacity]
    resized[:, : kept.shape[1], :, : kept.shape[3]] = kept
    return resized
