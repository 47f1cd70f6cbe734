"""Whether a forward pass computes what the model itself computes.

The model's own pass scores the canary, a `Forward` samples the tokens: only while both agree does the canary speak for
what is served.
"""

from typing import NamedTuple

import torch
from transformers import PreTrainedModel

from quartet.engine.forward import Forward, Span

PROBE_TOKENS = 32
START_PROBE_TOKENS = 512
"""At an engine's start one row of the probe is this long, and the other one short: log-probs of neither may depend on
the other."""
SHORT_PROBE_TOKENS = 16
MAX_GAP_NATS = {torch.float32: 1e-3, torch.bfloat16: 0.25, torch.float16: 0.05}
"""More than rounding makes, by the type of the weights."""


class OwnPass(NamedTuple):
    """What a model's own pass says about the probes that a `Forward` is compared on."""

    model_name: str
    probes: list[list[int]]
    """Token ids of two rows that run together, or of one where there is but one row."""
    logits: list[torch.Tensor]
    """`[2, vocab]` for each probe, after its last token but one and after its last."""


@torch.inference_mode()
def own_pass(model: PreTrainedModel, forward: Forward, num_tokens: int = PROBE_TOKENS) -> OwnPass:
    """Of `model`, on probes of up to `num_tokens` that fit into the rows of `forward`; runs the model alone."""
    length = min(num_tokens, forward.rows.max_context_tokens)
    longer = [(7 * index + 3) % forward.vocab_size for index in range(length)]
    shorter = [(11 * index + 5) % forward.vocab_size for index in range(max(2, min(length // 2, SHORT_PROBE_TOKENS)))]
    probes = [longer, shorter][: forward.rows.max_rows]
    batches = [torch.tensor([ids], device=model.device) for ids in probes]
    logits = [model(input_ids=ids_1L, use_cache=False).logits[0, -2:] for ids_1L in batches]
    return OwnPass(type(model).__name__, probes, logits)


def disagreement(forward: Forward, own: OwnPass) -> str:
    """What to say when the two passes differ by more than rounding, or are not finite; empty when they agree."""
    gap, limit = gap_nats(forward, own), MAX_GAP_NATS[own.logits[0].dtype]
    if gap <= limit:  # NaN does not agree
        return ""
    passes = f"{type(forward).__name__} and the own pass of {own.model_name}"
    return f"{passes} are {gap:.3g} nats apart, at most {limit} allowed"


@torch.inference_mode()
def gap_nats(forward: Forward, own: OwnPass) -> float:
    """How far apart both passes are about a sampled token: sum p |log p - log q| over the vocabulary, in nats.

    Weighted with p, because rounding in the tail of a large vocabulary means nothing. The largest over rows that run
    together, after their prompts and after one more token. In rows of its own: requests may be in flight.
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
