"""Attention of new tokens, given as one list, to the rows they belong to.

Neighbouring rows that are alike go together: rows that grow by one token, and rows that grow alike from the same start.
"""

from itertools import groupby
from typing import NamedTuple

import torch
import torch.nn.functional as F

from quartet.rollout.engine.forward import Span


class Run(NamedTuple):
    """Neighbouring rows with equally many new tokens; N rows, t new tokens each, L tokens of the longest row."""

    rows: slice
    tokens: slice
    """Their part of the list of new tokens."""
    num_new: int
    length: int
    mask: torch.Tensor | None
    """Added to the scores, broadcasts over `[N, kv_heads, queries, L]`; None: everything is visible, or causal."""
    causal: bool
    by_matrices: bool
    """Plain matrix products: in bfloat16 on a CPU they take half the time of PyTorch's kernel (256 tokens: 0.35
    and 0.76 ms), in float32 they take as long and need more memory."""


class Pass(NamedTuple):
    """One forward pass over T new tokens in S spans."""

    ids_T: torch.Tensor
    positions_T: torch.Tensor
    rows_T: torch.Tensor
    last_S: torch.Tensor
    runs: list[Run]


def plan_pass(spans: list[Span], like: torch.Tensor) -> Pass:
    """`like`: a buffer of `Rows`, for device and type."""
    ids, positions, rows, last = [], [], [], []
    for row, (start, token_ids) in enumerate(spans):
        ids += token_ids
        positions += range(start, start + len(token_ids))
        rows += [row] * len(token_ids)
        last.append(len(ids) - 1)
    whole = torch.tensor([ids, positions, rows], device=like.device)
    return Pass(whole[0], whole[1], whole[2], torch.tensor(last, device=like.device), _runs(spans, like))


def attend(q_THd: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, plan: Pass) -> torch.Tensor:
    """`[T, H d]` from queries `[T, H, d]` and a layer's `[rows, K, max_context, d]`, the new tokens included."""
    if len(plan.runs) == 1:
        return _attend_run(q_THd, keys, values, plan.runs[0])
    return torch.cat([_attend_run(q_THd[run.tokens], keys, values, run) for run in plan.runs])


def _attend_run(q_THd: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, run: Run) -> torch.Tensor:
    num_rows, kv_heads, head_dim = run.rows.stop - run.rows.start, keys.shape[1], keys.shape[3]
    k_NKLd = keys[run.rows, :, : run.length]
    v_NKLd = values[run.rows, :, : run.length]
    if run.num_new == 1:
        # The query heads that share a head of keys stand in the place of a sequence: no key is copied for them.
        q_NKGd = q_THd.reshape(num_rows, kv_heads, -1, head_dim)
        out_NKGd = F.scaled_dot_product_attention(q_NKGd, k_NKLd, v_NKLd, attn_mask=run.mask)
        return out_NKGd.reshape(num_rows, -1)
    q_NHtd = q_THd.view(num_rows, run.num_new, -1, head_dim).transpose(1, 2)
    attention = _by_matrices if run.by_matrices else _by_kernel
    return attention(q_NHtd, k_NKLd, v_NKLd, run).transpose(1, 2).reshape(len(q_THd), -1)


def _by_kernel(q_NHtd: torch.Tensor, k_NKLd: torch.Tensor, v_NKLd: torch.Tensor, run: Run) -> torch.Tensor:
    grouped = q_NHtd.shape[1] != k_NKLd.shape[1]
    return F.scaled_dot_product_attention(
        q_NHtd, k_NKLd, v_NKLd, attn_mask=run.mask, is_causal=run.causal, enable_gqa=grouped
    )


def _by_matrices(q_NHtd: torch.Tensor, k_NKLd: torch.Tensor, v_NKLd: torch.Tensor, run: Run) -> torch.Tensor:
    (num_rows, heads, num_new, head_dim), kv_heads, mask_tL = q_NHtd.shape, k_NKLd.shape[1], run.mask
    assert mask_tL is not None
    # The query heads that share a head of keys stand one below the other.
    q_NKsd = q_NHtd.reshape(num_rows, kv_heads, -1, head_dim)
    scores_NKsL = torch.matmul(q_NKsd, k_NKLd.transpose(-1, -2))
    scores_NHtL = scores_NKsL.view(num_rows, heads, num_new, -1).mul_(head_dim**-0.5).add_(mask_tL)
    return torch.matmul(scores_NHtL.softmax(dim=-1).view(scores_NKsL.shape), v_NKLd).view(q_NHtd.shape)


def _runs(spans: list[Span], like: torch.Tensor) -> list[Run]:
    runs: list[Run] = []
    by_matrices = like.dtype == torch.bfloat16 and like.device.type == "cpu"
    row = token = 0
    for (num_new, start), group in groupby(spans, key=_likeness):
        members = list(group)
        rows, tokens = slice(row, row + len(members)), slice(token, token + len(members) * num_new)
        row, token = rows.stop, tokens.stop
        length = max(span.start for span in members) + num_new
        mask = None
        if num_new == 1:
            mask = _mask_of_singles([span.start for span in members], length, like)
        elif start or by_matrices:
            positions_t1 = torch.arange(start, length, device=like.device).unsqueeze(1)
            mask = _additive(torch.arange(length, device=like.device) > positions_t1, like)
        runs.append(Run(rows, tokens, num_new, length, mask, mask is None and num_new > 1, by_matrices))
    return runs


def _likeness(span: Span) -> tuple[int, int]:
    num_new = len(span.token_ids)
    return (num_new, 0 if num_new == 1 else span.start)


def _mask_of_singles(positions: list[int], length: int, like: torch.Tensor) -> torch.Tensor | None:
    if min(positions) == length - 1:
        return None
    positions_N1 = torch.tensor(positions, device=like.device).unsqueeze(1)
    hidden_NL = torch.arange(length, device=like.device) > positions_N1
    return _additive(hidden_NL, like)[:, None, None]


def _additive(hidden: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return torch.zeros(hidden.shape, dtype=like.dtype, device=like.device).masked_fill_(hidden, -torch.inf)
