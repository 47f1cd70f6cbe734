"""vLLM's token route `/inference/v1/generate` as records; only fields that Quartet uses are named."""

from msgspec import Struct

from quartet.rollout.engine.base import GenerateRequest, GenerateResult
from quartet.rollout.engine.partial import server_seed
from quartet.rollout.engine.wire import VersionSpan, from_spans
from quartet.types import FinishReason

REQUEST_ID_PREFIX = "generate-tokens-"
"""What the server puts before a request's id; it knows no other name for it."""


class Span(Struct, frozen=True):
    version: str
    start: int
    end: int


class TokenLogprob(Struct, frozen=True):
    logprob: float


class TokenLogprobs(Struct, frozen=True):
    content: list[TokenLogprob] | None = None


class GenerateChoice(Struct, frozen=True):
    token_ids: list[int] | None
    finish_reason: FinishReason
    logprobs: TokenLogprobs | None = None
    weight_versions: list[Span] | None = None


class GenerateAnswer(Struct, frozen=True):
    choices: list[GenerateChoice]


def generate_body(request: GenerateRequest, cache_salt: str) -> dict[str, object]:
    """Requests with another salt share no prefix."""
    sampling = request.sampling
    # A greedy token's log-prob is that of the whole distribution.
    whole = sampling.temperature == 0
    return {
        "request_id": request.request_id,
        "token_ids": request.prompt_ids,
        "cache_salt": cache_salt,
        "sampling_params": {
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_k": 0 if whole else sampling.top_k,
            "top_p": 1.0 if whole else sampling.top_p,
            "min_tokens": sampling.min_tokens,
            "seed": server_seed(request),
            "logprobs": 0,  # the sampled token's alone
            "stop_token_ids": request.stop_token_ids,
            "ignore_eos": True,
            "detokenize": False,
        },
    }


def to_result(answer: GenerateAnswer) -> GenerateResult:
    """Raises `ValueError` for an answer without the parts that training needs."""
    if not answer.choices:
        raise ValueError("it has no choices")
    choice = answer.choices[0]
    token_ids = choice.token_ids or []
    logprobs = (choice.logprobs.content if choice.logprobs else None) or []
    spans = choice.weight_versions or []
    if token_ids and not (logprobs and spans):
        raise ValueError("it has no log-probs or no weight versions")
    return GenerateResult(
        token_ids=token_ids,
        logprobs=[entry.logprob for entry in logprobs],
        versions=from_spans([VersionSpan(int(span.version), span.start, span.end) for span in spans]),
        finish_reason=choice.finish_reason,
    )
