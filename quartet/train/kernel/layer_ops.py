"""Operations between matrix products, in float32 on a CPU, with their gradients; see `layer_ops.cpp`."""

import ctypes
from pathlib import Path
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from quartet.native.library import LANES, NUMBER, POINTER, REAL, native_library

SOURCES = (Path(__file__).with_name("layer_ops.cpp"),)


def layer_kernels(rows: torch.Tensor) -> ctypes.CDLL | None:
    """Return the compiled operations on the rows (last dimension) of a tensor; None if it has another dtype than
    float32, is on another device than a CPU, has no rows, or rows whose size is no multiple of `LANES`.

    Also returns None, with a warning, if they cannot be compiled.
    """
    known = rows.device.type == "cpu" and rows.dtype == torch.float32 and rows.numel() and rows.shape[-1] % LANES == 0
    return native_library(SOURCES, (), "a train step takes a fifth longer") if known else None


class Norm(torch.autograd.Function):
    """Autograd function of RMSNorm over the last dimension."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight_D: torch.Tensor, epsilon: float, library: ctypes.CDLL
    ) -> torch.Tensor:
        x, size = x.contiguous(), x.shape[-1]
        out, inverse_T = torch.empty_like(x), x.new_empty(x.numel() // size)
        library.norm(
            *_at(x, weight_D), NUMBER(len(inverse_T)), NUMBER(size), REAL(epsilon), *_at(out, inverse_T), _threads()
        )
        ctx.save_for_backward(x, weight_D, inverse_T)
        ctx.library = library
        return out

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        x, weight_D, inverse_T = ctx.saved_tensors
        of_x, of_weight_D, gradient = torch.empty_like(x), torch.zeros_like(weight_D), gradient.contiguous()
        sizes, scratch_D = (NUMBER(len(inverse_T)), NUMBER(len(weight_D))), torch.empty_like(weight_D)
        written = _at(of_x, of_weight_D, scratch_D)
        ctx.library.norm_backward(*_at(gradient, x, weight_D, inverse_T), *sizes, *written)
        return of_x, of_weight_D, None, None


class Gated(torch.autograd.Function):
    """Autograd function of silu(gate) * up."""

    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor, library: ctypes.CDLL) -> torch.Tensor:
        gate, up = gate.contiguous(), up.contiguous()
        out = torch.empty_like(gate)
        library.gated(*_at(gate, up), NUMBER(gate.numel()), *_at(out), _threads())
        ctx.save_for_backward(gate, up)
        ctx.library = library
        return out

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        gate, up = ctx.saved_tensors
        of_gate, of_up, gradient = torch.empty_like(gate), torch.empty_like(up), gradient.contiguous()
        ctx.library.gated_backward(*_at(gradient, gate, up), NUMBER(gate.numel()), *_at(of_gate, of_up), _threads())
        return of_gate, of_up, None


class TokenScores(torch.autograd.Function):
    """Autograd function of the log-probs of targets at the tokens' temperatures, and of the entropies at temperature
    1. Of the logits it keeps one copy, and no probabilities."""

    @staticmethod
    def forward(
        ctx: Any,
        logits_TV: torch.Tensor,
        targets_T: torch.Tensor,
        temperatures_T: torch.Tensor,
        library: ctypes.CDLL,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logits_TV = logits_TV.contiguous()
        count, size = logits_TV.shape
        if not 0 <= int(targets_T.min()) <= int(targets_T.max()) < size:
            raise IndexError(f"targets from {int(targets_T.min())} to {int(targets_T.max())} of {size} logits")
        logprobs_T, entropies_T, sums_T4 = (logits_TV.new_empty(count, *more) for more in ((), (), (4,)))
        read = _at(logits_TV, targets_T, temperatures_T)
        library.score(*read, NUMBER(count), NUMBER(size), *_at(logprobs_T, entropies_T, sums_T4), _threads())
        ctx.save_for_backward(logits_TV, targets_T, temperatures_T, sums_T4)
        ctx.set_materialize_grads(False)
        ctx.library = library
        return logprobs_T, entropies_T

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, of_logprobs_T: torch.Tensor | None, of_entropies_T: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        logits_TV, targets_T, temperatures_T, sums_T4 = ctx.saved_tensors
        of_logprobs_T = torch.zeros_like(temperatures_T) if of_logprobs_T is None else of_logprobs_T.contiguous()
        of_entropies_T = None if of_entropies_T is None else of_entropies_T.contiguous()
        out_TV, sizes = torch.empty_like(logits_TV), map(NUMBER, logits_TV.shape)
        of_entropies = POINTER(None if of_entropies_T is None else of_entropies_T.data_ptr())
        read = _at(logits_TV, targets_T, temperatures_T, sums_T4)
        ctx.library.score_backward(*_at(of_logprobs_T), of_entropies, *read, *sizes, *_at(out_TV), _threads())
        return out_TV, None, None, None


def _at(*tensors: torch.Tensor) -> list[ctypes.c_void_p]:
    """Return the addresses of contiguous tensors; the caller keeps the tensors."""
    assert all(tensor.is_contiguous() for tensor in tensors)
    return [POINTER(tensor.data_ptr()) for tensor in tensors]


def _threads() -> ctypes.c_int64:
    return NUMBER(torch.get_num_threads())
