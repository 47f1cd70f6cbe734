"""Comparison of the engine's forward pass (`Forward`) with the forward pass of the model in `transformers`.

An engine verifies new weights by scoring the canary: token sequences whose log-probs the trainer publishes with each
policy. The canary is scored by the model's pass in `transformers`, but tokens are sampled from the `Forward`, so both
passes must agree.
"""

from typing import NamedTuple

import torch
from transformers import PreTrainedModel

from quartet.engine.forward import Forward, Span

PROBE_TOKENS = 32
START_PROBE_TOKENS = 512
"""Length of the longer of the two probes at an engine's start. Two probes show whether the log-probs of a row depend on
another row."""
SHORT_PROBE_TOKENS = 16
MAX_GAP_NATS = {torch.float32: 1e-3, torch.bfloat16: 0.25, torch.float16: 0.05}
"""Largest gap in nats that rounding explains, by the dtype of the weights."""


class OwnPass(NamedTuple):
    """Logits of the model's pass in `transformers` on probe sequences, the reference for a `Forward`."""

    model_name: str
    probes: list[list[int]]
    """Token ids of two rows that run together, or of one row if the engine has only one."""
    logits: list[torch.Tensor]
    """Logits `[2, vocab]` for each probe: after its second to last token, and after its last token."""


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
    return OwnPass(type(model).__name__, probes, logits)


def disagreement(forward: Forward, own: OwnPass) -> str:
    """Return an error message if the passes differ by more than rounding errors or are not finite, else an empty
    string."""
    gap, limit = gap_nats(forward, own), MAX_GAP_NATS[own.logits[0].dtype]
    if gap <= limit:  # False for NaN
        return ""
    passes = f"{type(forward).__name__} and the forward pass of {own.model_name} in transformers"
    return f"{passes} are {gap:.3g} nats apart, more than the allowed {limit}"


@torch.inference_mode()
def gap_nats(forward: Forward, own: OwnPass) -> float:
    """Return the gap between both passes' distributions: sum p |log p - log q| over the vocabulary, in nats.

    Weighting with p ignores rounding in the tail of a large vocabulary. The result is the largest gap over the probes,
    after their prompts and after one more token. The probes run together, in separate rows, since requests may be in
    flight.
    """
    with forward.rows.aside():
        after_prompt_NV = forward.extend([Span(0, ids[:-1]) for ids in own.probes])
        after_token_NV = forward.extend([Span(len(ids) - 1, ids[-1:]) for ids in own.probes])
    gaps = []
    for row, theirs_2V in enumerate(own.logits):
        ours_2V = torch.stack([after_prompt_NV[row], after_token_NV[row]])
        p, q = theirs_2V.float().log_softmax(-1), ours_2V.float().log_softmax(-1)
        gaps.append((p.exp() * (p - q).abs()).sum(-1).max())
    return float(torch.stack(gaps).max())
