"""Attention over a packed row that computes what branches share once, in float32 on a CPU; see `tree_attention.cpp`."""

import ctypes
from pathlib import Path
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from quartet.native.library import LANES, NUMBER, POINTER, native_library
from quartet.train.packing.tree import Tree

SOURCES = (Path(__file__).with_name("tree_attention.cpp"),)
KEYS = 32
"""Keys of which the kernel computes the scores together."""


class _View(ctypes.Structure):
    _fields_ = [("numbers", POINTER), ("head_stride", NUMBER), ("column_stride", NUMBER)]

    @classmethod
    def of(cls, heads_HLd: torch.Tensor) -> "_View":
        assert heads_HLd.stride(2) == 1
        return cls(heads_HLd.data_ptr(), heads_HLd.stride(0), heads_HLd.stride(1))


class _Slopes(ctypes.Structure):
    _fields_ = [("q", _View), ("k", _View), ("v", _View)]


class _Shape(ctypes.Structure):
    _fields_ = [
        *[(name, NUMBER) for name in ("kv_heads", "group", "columns", "spans")],
        ("span", POINTER),
        ("range", POINTER),
        ("scratch", POINTER),
        ("path_tokens", NUMBER),
        ("scale", ctypes.c_float),
    ]


def tree_kernel(head_dim: int, dtype: torch.dtype, device: torch.device) -> ctypes.CDLL | None:
    """Return the compiled kernel; None for other devices than CPUs, other dtypes than float32, and heads whose size is
    no multiple of `LANES`. Also returns None, with a warning, if it cannot be compiled."""
    if device.type != "cpu" or dtype != torch.float32 or head_dim % LANES:
        return None
    return native_library(SOURCES, (("HEAD_DIM", head_dim), ("KEYS", KEYS)), "a train step takes up to twice as long")


def attend_tree(
    library: ctypes.CDLL, q_HLd: torch.Tensor, k_KLd: torch.Tensor, v_KLd: torch.Tensor, tree: Tree, scale: float
) -> torch.Tensor:
    """Return the attention outputs `[L, H, d]`. H: query heads, K: key-value heads."""
    assert v_KLd.shape == k_KLd.shape and k_KLd.shape[1:] == q_HLd.shape[1:], "the kernel reads memory by these sizes"
    return _TreeAttention.apply(*map(_readable, (q_HLd, k_KLd, v_KLd)), library, tree, scale).transpose(0, 1)


def _readable(heads_HLd: torch.Tensor) -> torch.Tensor:
    return heads_HLd if heads_HLd.stride(2) == 1 else heads_HLd.contiguous()


def _by_column(like_HLd: torch.Tensor) -> torch.Tensor:
    """Return zeros `[H, L, d]`, stored as `[L, H, d]`."""
    heads, columns, head_dim = like_HLd.shape
    return like_HLd.new_zeros(columns, heads, head_dim).transpose(0, 1)


class _TreeAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q_HLd: torch.Tensor,
        k_KLd: torch.Tensor,
        v_KLd: torch.Tensor,
        library: ctypes.CDLL,
        tree: Tree,
        scale: float,
    ) -> torch.Tensor:
        out_HLd, log_sums_HL = _by_column(q_HLd), q_HLd.new_empty(q_HLd.shape[:2])
        views = [ctypes.byref(_View.of(part)) for part in (q_HLd, k_KLd, v_KLd, out_HLd)]
        scratch = _scratch(q_HLd, tree, paths=2)
        shape = ctypes.byref(_shape(q_HLd, k_KLd, tree, scale, scratch))
        library.attend(shape, *views, POINTER(log_sums_HL.data_ptr()), NUMBER(len(scratch)))
        ctx.save_for_backward(q_HLd, k_KLd, v_KLd, out_HLd, log_sums_HL)
        ctx.library, ctx.tree, ctx.scale = library, tree, scale
        return out_HLd

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient_HLd: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        q_HLd, k_KLd, v_KLd, out_HLd, log_sums_HL = ctx.saved_tensors
        found = [_by_column(part) for part in (q_HLd, k_KLd, v_KLd)]
        views = [ctypes.byref(_View.of(part)) for part in (q_HLd, k_KLd, v_KLd, out_HLd)]
        given_HLd, scratch = _readable(gradient_HLd), _scratch(q_HLd, ctx.tree, paths=4)
        ctx.library.attend_backward(
            ctypes.byref(_shape(q_HLd, k_KLd, ctx.tree, ctx.scale, scratch)),
            *views,
            POINTER(log_sums_HL.data_ptr()),
            ctypes.byref(_View.of(given_HLd)),
            ctypes.byref(_Slopes(*map(_View.of, found))),
            NUMBER(len(scratch)),
        )
        return (*found, None, None, None)


def _scratch(q_HLd: torch.Tensor, tree: Tree, *, paths: int) -> torch.Tensor:
    """Return memory `[threads, paths, tokens, d]` in which each thread gathers keys or values of a whole branch."""
    tokens = -(-tree.longest_branch // KEYS) * KEYS
    return q_HLd.new_empty(torch.get_num_threads(), paths, tokens, q_HLd.shape[2])


def _shape(q_HLd: torch.Tensor, k_KLd: torch.Tensor, tree: Tree, scale: float, scratch: torch.Tensor) -> _Shape:
    """Return what the kernel needs besides the tensors; `tree` and the caller keep the memory alive."""
    (heads, columns, _), kv_heads = q_HLd.shape, len(k_KLd)
    assert columns == tree.num_columns
    spans, ranges = tree.spans, tree.ranges
    counts, arrays = (kv_heads, heads // kv_heads, columns, len(spans)), (spans.ctypes.data, ranges.ctypes.data)
    return _Shape(*counts, *arrays, scratch.data_ptr(), scratch.shape[2], scale)
