"""Comparison of the engine's forward pass (`Forward`) with the forward pass of the model in `transformers`.

An engine verifies new weights by scoring the canary: token sequences whose log-probs the trainer publishes with each
policy. The canary is scored by the model's pass in `transformers`, but tokens are sampled from the `Forward`, so both
passes must agree.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from transformers import PreTrainedModel

from quartet.engine.forward import Forward, Span
from quartet.policy.fixed_picture import (
    NUM_PLACEHOLDERS,
    behind_fixed_picture,
    fixed_picture_inputs,
    fixed_picture_logits,
)
from quartet.policy.kind.find import vision_kind

PROBE_TOKENS = 32
START_PROBE_TOKENS = 512
"""Length of the longer of the two probes at an engine's start. Two probes show whether the log-probs of a row depend on
another row."""
SHORT_PROBE_TOKENS = 16
MAX_GAP_NATS = {torch.float32: 1e-3, torch.bfloat16: 0.25, torch.float16: 0.05}
"""Gap in nats that rounding explains, by the dtype of the weights: in float32 the largest gap of a distribution, in
bfloat16 and float16 the root mean square over all, since rounding moves a few far."""


class OwnPass(NamedTuple):
    """Logits of the model's pass in `transformers` on probe sequences, the reference for a `Forward`."""

    model_name: str
    probes: list[list[int]]
    """Token ids of two rows that run together, or of one row if the engine has only one."""
    logits: list[torch.Tensor]
    """Logits `[2, vocab]` for each probe: after its second to last token, and after its last token."""
    behind_picture: torch.Tensor | None
    """Logits `[1, vocab]` after the last probe's beginning behind a fixed picture; None for a model that reads only
    text."""


@torch.inference_mode()
def own_pass(model: PreTrainedModel, forward: Forward, num_tokens: int = PROBE_TOKENS) -> OwnPass:
    """Run the model's pass in `transformers` on probes of at most `num_tokens` tokens, one probe at a time.

    The number and the length of the probes fit into the rows of `forward`.
    """
    length = min(num_tokens, forward.rows.max_context_tokens)
    longer = [(7 * index + 3) % forward.vocab_size for index in range(length)]
    shorter = [(11 * index + 5) % forward.vocab_size for index in range(max(2, min(length // 2, SHORT_PROBE_TOKENS)))]
    probes = [longer, shorter][: forward.rows.max_rows]
    batches = [torch.tensor([ids], device=model.device) for ids in probes]
    logits = [model(input_ids=ids_1L, use_cache=False).logits[0, -2:] for ids_1L in batches]
    behind_picture = fixed_picture_logits(model, _beginning(probes))
    return OwnPass(type(model).__name__, probes, logits, None if behind_picture is None else behind_picture[-1:])


def disagreement(model: PreTrainedModel, forward: Forward, own: OwnPass) -> str:
    """Return an error message if the passes differ by more than rounding errors or are not finite, else an empty
    string."""
    gap, limit = gap_nats(model, forward, own), MAX_GAP_NATS[own.logits[0].dtype]
    if gap <= limit:  # False for NaN
        return ""
    passes = f"{type(forward).__name__} and the forward pass of {own.model_name} in transformers"
    return f"{passes} are {gap:.3g} nats apart, more than the allowed {limit}"


@torch.inference_mode()
def gap_nats(model: PreTrainedModel, forward: Forward, own: OwnPass) -> float:
    """Return the gap between both passes' distributions: sum p |log p - log q| over the vocabulary, in nats.

    Weighting with p ignores rounding in the tail of a large vocabulary. Gaps are taken for all probes, after their
    prompts and after one more token; `MAX_GAP_NATS` says how they become one. The probes run together, in separate
    rows, since requests may be in flight.
    """
    with forward.rows.aside():
        after_prompt_NV = forward.extend([Span(0, ids[:-1]) for ids in own.probes])
        after_token_NV = forward.extend([Span(len(ids) - 1, ids[-1:]) for ids in own.probes])
        behind_picture_1V = None if own.behind_picture is None else forward.extend([_picture_span(model, own)])
    ours = [torch.stack([after_prompt_NV[row], after_token_NV[row]]) for row in range(len(own.probes))]
    gaps = [_gaps(theirs_2V, ours_2V) for theirs_2V, ours_2V in zip(own.logits, ours, strict=True)]
    if own.behind_picture is not None and behind_picture_1V is not None:
        gaps.append(_gaps(own.behind_picture, behind_picture_1V))
    gaps_N = torch.cat(gaps)
    exact = own.logits[0].dtype == torch.float32
    return float(gaps_N.max() if exact else gaps_N.square().mean().sqrt())


def _gaps(theirs_NV: torch.Tensor, ours_NV: torch.Tensor) -> torch.Tensor:
    p, q = theirs_NV.float().log_softmax(-1), ours_NV.float().log_softmax(-1)
    return (p.exp() * (p - q).abs()).sum(-1)


def _beginning(probes: Sequence[list[int]]) -> list[int]:
    """Return the tokens that fit behind the fixed picture into the place of the last probe."""
    return probes[-1][:-NUM_PLACEHOLDERS]


def _picture_span(model: PreTrainedModel, own: OwnPass) -> Span:
    """Return the fixed picture and the tokens behind it, with features under the model's present weights."""
    ids = behind_fixed_picture(model, _beginning(own.probes))
    kind = vision_kind(model)
    assert kind is not None, "only a model that reads pictures has logits behind one"
    positions_3T = np.arange(len(ids))[None].repeat(3, axis=0)
    return Span(0, ids, positions_3T, [kind.features(model, fixed_picture_inputs(model))])
