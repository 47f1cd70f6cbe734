"""Attention of new tokens to their rows, compiled (`kernel_library.py`).

Of one new token per row: PyTorch's matrix products read keys and values at a third of the memory's speed in bfloat16
(10 of 40 GB/s: a group of two query heads leaves most lanes of the processor empty), and all rows up to the longest;
`row_kernel.cpp` reads each row up to its own length, at the memory's speed. Of many: PyTorch's kernel does 40 GFLOP/s,
this one 115.
"""

import ctypes
from typing import Any

import torch


class RowKernel:
    """H query heads, K heads of keys and values, d head_dim."""

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
        """`[N, H d]` of one new token per row, from rows `[N, K, capacity, d]` without gaps; row i sees its tokens up
        to `positions_N[i]`."""
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
        """`[T, H d]` of T / N new tokens per row, from position `start` on; each sees those before it and itself."""
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
