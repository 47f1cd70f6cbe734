"""Whether a forward pass computes what the model itself computes.

The model's own pass scores the canary, a `Forward` samples the tokens: only while both agree does the canary speak for
what is served.
"""

import torch
from transformers import PreTrainedModel

from quartet.rollout.engine.forward import Forward, Span

PROBE_TOKENS = 32
MAX_GAP_NATS = {torch.float32: 1e-3, torch.bfloat16: 0.25, torch.float16: 0.05}
"""More than rounding makes, by the type of the weights."""


def disagreement(forward: Forward, model: PreTrainedModel) -> str:
    """What to say when the two passes differ by more than rounding, or are not finite; empty when they agree."""
    gap, limit = gap_nats(forward, model), MAX_GAP_NATS[model.dtype]
    if gap <= limit:  # NaN does not agree
        return ""
    passes = f"{type(forward).__name__} and the own pass of {type(model).__name__}"
    return f"{passes} are {gap:.3g} nats apart, at most {limit} allowed"


@torch.inference_mode()
def gap_nats(forward: Forward, model: PreTrainedModel) -> float:
    """How far apart both passes are about a sampled token: sum p |log p - log q| over the vocabulary, in nats.

    Weighted with p, because rounding in the tail of a large vocabulary means nothing. The largest over two rows that
    run together, after their prompts and after one more token. Rows keep what they hold, so requests may be in flight.
    """
    rows, vocab_size = forward.rows, forward.vocab_size
    length = min(PROBE_TOKENS, rows.keys.shape[3])
    longer = [(7 * index + 3) % vocab_size for index in range(length)]
    shorter = [(11 * index + 5) % vocab_size for index in range(max(2, length // 2))]
    probes = [longer, shorter][: rows.keys.shape[1]]
    held = [rows.read(row, 0, len(ids)) for row, ids in enumerate(probes)]
    try:
        after_prompt_NV = forward.extend([Span(0, ids[:-1]) for ids in probes])
        after_token_NV = forward.extend([Span(len(ids) - 1, ids[-1:]) for ids in probes])
    finally:
        for row, segment in enumerate(held):
            rows.write(row, 0, segment)
    gaps = []
    for row, ids in enumerate(probes):
        theirs_2V = model(input_ids=torch.tensor([ids], device=model.device), use_cache=False).logits[0, -2:]
        ours_2V = torch.stack([after_prompt_NV[row], after_token_NV[row]])
        p, q = theirs_2V.float().log_softmax(-1), ours_2V.float().log_softmax(-1)
        gaps.append((p.exp() * (p - q).abs()).sum(-1).max())
    return float(torch.stack(gaps).max())
