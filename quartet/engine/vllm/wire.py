"""JSON records of vLLM's route for token ids; only fields that Quartet uses are declared."""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from quartet.engine.base import GenerateRequest
from quartet.engine.partial import server_seed
from quartet.engine.vllm.pictures import LOWEST_BIAS, check_expanded, collapsed, content_parts
from quartet.errors import WrongAnswerError
from quartet.types import FinishReason, Media, Prompt

ROUTE = "/inference/v1/generate"
TOKENS_PER_EVENT = 16
"""Number of tokens per event. With one event per token, a server would spend more time on the events than on the
tokens. If the server dies, the tokens since the last event are lost."""

CACHE_USE = re.compile(r"^vllm:kv_cache_usage_perc(?:\{[^}]*\})? (\S+)$", re.MULTILINE)
"""Line of `GET /metrics` with the share of KV cache blocks that requests hold. A server with data parallelism has one
line for each of its engines."""
REQUEST_ID_PREFIX = "generate-tokens-"
"""Prefix that the server adds to a request's id; later calls must name the request with this prefix."""


class Span(Struct, frozen=True):
    version: str
    start: int
    end: int


class TokenLogprob(Struct, frozen=True):
    logprob: float


class TokenLogprobs(Struct, frozen=True):
    content: list[TokenLogprob] | None = None


class StreamChoice(Struct, frozen=True):
    """Data of the response since the previous event."""

    token_ids: list[int] | None = None
    logprobs: TokenLogprobs | None = None
    finish_reason: FinishReason | None = None
    """Reason for the end of the response; None before the last event."""
    weight_versions: list[Span] | None = None
    """Policy versions of all tokens of the response; None before the last event."""


class StreamEvent(Struct, frozen=True):
    choices: list[StreamChoice] = []
    prompt_token_ids: list[int] | None = None
    """Prompt with expanded placeholders, in the first event of a response to a prompt with pictures."""
    error: object = None


class Scored(Struct, frozen=True):
    """Response to `score_body`."""

    prompt_logprobs: list[dict[int, TokenLogprob] | None] = []
    """For each token of the prompt, as expanded, its log-prob by its id; None for the first."""
    prompt_token_ids: list[int] = []
    """Prompt with expanded placeholders."""

    def logprobs(self, prompt_ids: Sequence[int]) -> list[float]:
        """Return the log-probs of all tokens of the prompt but the first.

        Raises `PlaceholderMismatchError` if the server expanded the prompt to other ids, and `WrongAnswerError` if
        log-probs are missing.
        """
        check_expanded(prompt_ids, self.prompt_token_ids)
        found = [(at or {}).get(token) for token, at in zip(prompt_ids, self.prompt_logprobs, strict=False)][1:]
        logprobs = [one.logprob for one in found if one is not None]
        if len(logprobs) != len(prompt_ids) - 1:
            raise WrongAnswerError(f"the server sent {len(logprobs)} log-probs of a prompt of {len(prompt_ids)} tokens")
        return logprobs


def generate_body(request: GenerateRequest, cache_salt: str, never_sampled: Sequence[int] = ()) -> dict[str, object]:
    """Return the request body. Requests with different salts share no cached prefix. The tokens `never_sampled` stand
    for pictures."""
    return {
        "request_id": request.request_id,
        "token_ids": collapsed(request.prompt_ids, request.media),
        **(_with_pictures(request.media, request.pictures, cache_salt) if request.media else {}),
        "cache_salt": cache_salt,
        "stream": True,
        "sampling_params": _sampling_params(request, never_sampled),
    }


def score_body(prompt: Prompt, cache_salt: str) -> dict[str, object]:
    """Return the body of a request for the log-probs of a prompt with pictures, at temperature 1."""
    return {
        "token_ids": collapsed(prompt.ids, prompt.media),
        **_with_pictures(prompt.media, prompt.pictures, cache_salt),
        "cache_salt": cache_salt,
        "sampling_params": {"max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0, "detokenize": False},
    }


def _with_pictures(media: Sequence[Media], pictures: Mapping[str, bytes], cache_salt: str) -> dict[str, object]:
    return {"content_parts": content_parts(media, pictures, cache_salt), "return_token_ids": True}


def _sampling_params(request: GenerateRequest, never_sampled: Sequence[int]) -> dict[str, object]:
    sampling = request.sampling
    # The log-prob of a greedy token is reported for the full distribution.
    whole = sampling.temperature == 0
    return {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_k": 0 if whole else sampling.top_k,
        "top_p": 1.0 if whole else sampling.top_p,
        "min_tokens": sampling.min_tokens,
        "seed": server_seed(request),
        "logprobs": 0,  # of the sampled token only
        "stop_token_ids": request.stop_token_ids,
        "ignore_eos": True,
        "detokenize": False,
        "stream_interval": TOKENS_PER_EVENT,
        **({"logit_bias": {str(token): LOWEST_BIAS for token in never_sampled}} if never_sampled else {}),
    }


def cache_use(metrics: str) -> float | None:
    """Return the largest use of a KV cache that the server's metrics report; None without any.

    >>> cache_use('vllm:kv_cache_usage_perc{engine="0"} 0.25')
    0.25
    """
    return max((float(found) for found in CACHE_USE.findall(metrics)), default=None)
