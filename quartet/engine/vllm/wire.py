"""vLLM's token route as records; only fields that Quartet uses are named."""

from msgspec import Struct

from quartet.engine.base import GenerateRequest
from quartet.engine.partial import server_seed
from quartet.types import FinishReason

ROUTE = "/inference/v1/generate"
TOKENS_PER_EVENT = 16
"""An event for each token would cost a server more than the token. What came since the last event dies with it."""

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


class StreamChoice(Struct, frozen=True):
    """What is new since the event before."""

    token_ids: list[int] | None = None
    logprobs: TokenLogprobs | None = None
    finish_reason: FinishReason | None = None
    """In the last event only."""
    weight_versions: list[Span] | None = None
    """Of the whole response, in the last event only."""


class StreamEvent(Struct, frozen=True):
    choices: list[StreamChoice] = []
    error: object = None


def generate_body(request: GenerateRequest, cache_salt: str) -> dict[str, object]:
    """Requests with another salt share no prefix."""
    sampling = request.sampling
    # A greedy token's log-prob is that of the whole distribution.
    whole = sampling.temperature == 0
    return {
        "request_id": request.request_id,
        "token_ids": request.prompt_ids,
        "cache_salt": cache_salt,
        "stream": True,
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
            "stream_interval": TOKENS_PER_EVENT,
        },
    }
