"""Comparison of a `Forward` with the model's own forward pass.

The model's own pass scores the canary, while a `Forward` samples the tokens. The canary therefore proves the served
weights only as long as both passes agree.
"""

from typing import NamedTuple

import torch
from transformers import PreTrainedModel

from quartet.engine.forward import Forward, Span

PROBE_TOKENS = 32
START_PROBE_TOKENS = 512
"""Length of one probe row at an engine's start; the other row is short. Log-probs of neither may depend on the
other."""
SHORT_PROBE_TOKENS = 16
MAX_GAP_NATS = {torch.float32: 1e-3, torch.bfloat16: 0.25, torch.float16: 0.05}
"""Largest gap that rounding explains, by the type of the weights."""


class OwnPass(NamedTuple):
    """Logits of a model's own pass on the probes, the reference for a `Forward`."""

    model_name: str
    probes: list[list[int]]
    """Token ids of two rows that run together, or of one if only one row exists."""
    logits: list[torch.Tensor]
    """Logits `[2, vocab]` per probe, after its second to last token and after its last."""


@torch.inference_mode()
def own_pass(model: PreTrainedModel, forward: Forward, num_tokens: int = PROBE_TOKENS) -> OwnPass:
    """Run `model` alone on probes of up to `num_tokens` that fit into the rows of `forward`."""
    length = min(num_tokens, forward.rows.max_context_tokens)
    longer = [(7 * index + 3) % forward.vocab_size for index in range(length)]
    shorter = [(11 * index + 5) % forward.vocab_size for index in range(max(2, min(length // 2, SHORT_PROBE_TOKENS)))]
    probes = [longer, shorter][: forward.rows.max_rows]
    batches = [torch.tensor([ids], device=model.device) for ids in probes]
    logits = [model(input_ids=ids_1L, use_cache=False).logits[0, -2:] for ids_1L in batches]
    return OwnPass(type(model).__name__, probes, logits)


def disagreement(forward: Forward, own: OwnPass) -> str:
    """Return an error message if both passes differ by more than rounding or are not finite, else an empty string."""
    gap, limit = gap_nats(forward, own), MAX_GAP_NATS[own.logits[0].dtype]
    if gap <= limit:  # False for NaN
        return ""
    passes = f"{type(forward).__name__} and the own pass of {own.model_name}"
    return f"{passes} are {gap:.3g} nats apart, at most {limit} allowed"


@torch.inference_mode()
def gap_nats(forward: Forward, own: OwnPass) -> float:
    """Return the gap of both passes about a sampled token: sum p |log p - log q| over the vocabulary, in nats.

    Weighting with p ignores rounding in the tail of a large vocabulary. The result is the largest gap over rows that
    run together, after their prompts and after one more token. The rows are separate ones, since requests may be in
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
