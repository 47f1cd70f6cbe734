"""Validation of an engine's results, so that an invalid sample does not become training data."""

import math

from quartet.engine.base import GenerateRequest, GenerateResult
from quartet.ledger.soundness import MAX_ROUNDING_NATS
from quartet.types import FinishReason


def find_problem(request: GenerateRequest, result: GenerateResult, vocab_size: float = math.inf) -> str:
    """Return the problem of a result as a verb phrase whose subject is the engine; "" if the result is valid.

    A result without log-probs and versions is valid here; `quartet.rollout.client` rejects it for training.
    """
    ids, count, sampling = result.token_ids, len(result.token_ids), request.sampling
    fewest = 0 if result.finish_reason is FinishReason.ABORT else 1
    if not fewest <= count <= sampling.max_tokens:
        return f"sampled {count} tokens instead of {fewest} to {sampling.max_tokens}"
    if ids and not 0 <= min(ids) <= max(ids) < vocab_size:
        return (
            f"sent token ids from {min(ids)} to {max(ids)}, but its vocabulary has only the ids 0 to {vocab_size - 1}"
        )
    if not {*ids[:-1]}.isdisjoint(request.stop_token_ids):
        return "sampled further tokens after a stop token"
    if mismatch := result.mismatch:
        return f"sent columns of different lengths: {mismatch}"
    if not all(math.isfinite(logprob) and logprob <= MAX_ROUNDING_NATS for logprob in result.logprobs):
        return "sent invalid log-probs (above 0, infinite or NaN)"
    if not all(math.isfinite(entropy) and entropy >= -MAX_ROUNDING_NATS for entropy in result.entropies):
        return "sent invalid entropies (below 0, infinite or NaN)"
    if result.versions and (result.versions[0] < 0 or result.versions != sorted(result.versions)):
        return f"sent policy versions that go backwards: {result.versions}"
    if result.finish_reason is FinishReason.STOP:
        stopped = ids[-1] in request.stop_token_ids or result.stop_string in request.stop_strings
        if not stopped or count <= sampling.min_tokens:
            return f"stopped after {count} tokens without a stop token or stop string, or before min_tokens"
    return ""
