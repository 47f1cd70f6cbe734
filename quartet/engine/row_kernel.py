"""Compiled attention from new tokens to the keys and values in the KV cache; `kernel_library.py` compiles it.

A row is the KV cache of one running request. With one new token per row, PyTorch's matrix products in bfloat16 read
keys and values at 10 GB/s, a quarter of the memory's speed, because a group of two query heads leaves most SIMD lanes
empty. They also read every row up to the length of the longest row. `row_kernel.cpp` reads each row only up to that
row's length, at the memory's speed. With many new tokens per row, PyTorch's kernel reaches 40 GFLOP/s, and
`row_kernel.cpp` 115.
"""

import ctypes
from typing import Any

import torch


class RowKernel:
    """Attention kernel. H: query heads, K: key-value heads, d: head_dim."""

    def __init__(self, library: ctypes.CDLL) -> None:
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._rows: Any = library.attend_rows
        self._rows.argtypes = [pointer, number, *[pointer] * 3, *[number] * 3, pointer, number]
        self._chunks: Any = library.attend_chunks
        self._chunks.argtypes = [pointer, number, *[pointer] * 2, *[number] * 5, pointer, number]
        self._rows.restype = self._chunks.restype = None

    def singles(
        self, q_NHd: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, positions_N: torch.Tensor
    ) -> torch.Tensor:
        """Return the attention output `[N, H d]` of one new token per row over contiguous rows `[N, K, capacity, d]`.

        Row i attends to its tokens up to `positions_N[i]`.
        """
        rows, kv_heads, capacity, _ = keys.shape
        assert keys.is_contiguous() and values.is_contiguous() and q_NHd[0].is_contiguous()
        out_NHd = q_NHd.new_empty(q_NHd.shape)
        self._rows(
            q_NHd.data_ptr(),
            q_NHd.stride(0),
            keys.data_ptr(),
            values.data_ptr(),
            positions_N.data_ptr(),
            rows,
            kv_heads,
            capacity,
            out_NHd.data_ptr(),
            torch.get_num_threads(),
        )
        return out_NHd.flatten(1)

    def chunks(self, q_THd: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, start: int) -> torch.Tensor:
        """Return the attention output `[T, H d]` of T / N new tokens per row, from position `start` on.

        Attention is causal.
        """
        rows, kv_heads, capacity, _ = keys.shape
        assert keys.is_contiguous() and values.is_contiguous() and q_THd[0].is_contiguous()
        out_THd = q_THd.new_empty(q_THd.shape)
        self._chunks(
            q_THd.data_ptr(),
            q_THd.stride(0),
            keys.data_ptr(),
            values.data_ptr(),
            start,
            len(q_THd) // rows,
            rows,
            kv_heads,
            capacity,
            out_THd.data_ptr(),
            torch.get_num_threads(),
        )
        return out_THd.flatten(1)
