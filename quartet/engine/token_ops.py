"""Per-token operations of a decoder layer between its matrix products: their interface, and a version in PyTorch."""

from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F


class HeadNorms(NamedTuple):
    """RMSNorm weights, `[d]` each, of query heads and key heads, as in Qwen3."""

    q_d: torch.Tensor
    k_d: torch.Tensor


class Places(NamedTuple):
    """Rows and positions of the T new tokens of a pass, and their rotary factors with h = d / 2 numbers each."""

    rows_T: torch.Tensor
    positions_T: torch.Tensor
    cos_Th: torch.Tensor
    sin_Th: torch.Tensor


class TokenOps(Protocol):
    """Per-token operations. T: tokens, D: hidden size, M: size of the MLP, H: query heads, K: key-value heads, d: size
    of a head."""

    def normed(self, x_TD: torch.Tensor, weight_D: torch.Tensor) -> torch.Tensor:
        """Return RMSNorm (Zhang and Sennrich 2019) of `x_TD`."""
        ...

    def placed(
        self,
        projected_TE: torch.Tensor,
        norms: HeadNorms | None,
        keys: torch.Tensor,
        values: torch.Tensor,
        places: Places,
    ) -> torch.Tensor:
        """Split projections `[T, (H + 2 K) d]`: return queries `[T, H, d]`, write keys and values to their rows.

        Queries and keys get rotary embedding (Su et al. 2021) in the half-split form: (a, b) -> (a cos - b sin,
        b cos + a sin). The rows are `[rows, K, capacity, d]`.
        """
        ...

    def gated(self, gate_up_TE: torch.Tensor) -> torch.Tensor:
        """Return silu(gate) * up `[T, M]` for `[gate, up]` `[T, 2 M]`."""
        ...


class TorchTokenOps:
    """`TokenOps` in PyTorch, for any device."""

    def __init__(self, eps: float) -> None:
        self._eps = eps

    def normed(self, x_TD: torch.Tensor, weight_D: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x_TD, weight_D.shape, weight_D, self._eps)

    def placed(
        self,
        projected_TE: torch.Tensor,
        norms: HeadNorms | None,
        keys: torch.Tensor,
        values: torch.Tensor,
        places: Places,
    ) -> torch.Tensor:
        _, kv_heads, _, head_dim = keys.shape
        projected_THd = projected_TE.unflatten(-1, (-1, head_dim))
        heads = projected_THd.shape[1] - 2 * kv_heads
        qk_THd = projected_THd[:, : heads + kv_heads]
        if norms is not None:
            qk_THd = F.rms_norm(qk_THd, (head_dim,), None, self._eps)
            qk_THd[:, :heads].mul_(norms.q_d)
            qk_THd[:, heads:].mul_(norms.k_d)
        qk_THd = _turned(qk_THd, places.cos_Th.unsqueeze(1), places.sin_Th.unsqueeze(1))
        keys[places.rows_T, :, places.positions_T] = qk_THd[:, heads:]
        values[places.rows_T, :, places.positions_T] = projected_THd[:, heads + kv_heads :]
        return qk_THd[:, :heads]

    def gated(self, gate_up_TE: torch.Tensor) -> torch.Tensor:
        gate_TM, up_TM = gate_up_TE.chunk(2, dim=-1)
        return F.silu(gate_TM).mul_(up_TM)


def _turned(x_THd: torch.Tensor, cos_T1h: torch.Tensor, sin_T1h: torch.Tensor) -> torch.Tensor:
    half = sin_T1h.shape[-1]
    turned_THd = x_THd * torch.cat([cos_T1h, cos_T1h], dim=-1)
    turned_THd[..., :half].addcmul_(x_THd[..., half:], sin_T1h, value=-1)
    turned_THd[..., half:].addcmul_(x_THd[..., :half], sin_T1h)
    return turned_THd
