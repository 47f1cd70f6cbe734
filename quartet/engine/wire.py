"""JSON records of the engine's HTTP API, used by server and client: vLLM's `/v1/completions`, with token ids.

Only fields that Quartet uses are declared; other fields that a vLLM client sends are ignored.
"""

from itertools import groupby
from typing import Annotated

from msgspec import Meta, Struct

from quartet.types import MAIN, FinishReason, Media

MODEL_NAME = MAIN
MAX_BODY_BYTES = 64 * 2**20
"""Maximum size of a request's body, including its pictures in base64."""

TokenId = Annotated[int, Meta(ge=0)]


class CompletionRequest(Struct, frozen=True, kw_only=True):
    """Body of `POST /v1/completions`."""

    prompt: Annotated[list[TokenId], Meta(min_length=1)]
    """Token ids. Text is not accepted, because the engine would have to tokenize it a second time."""
    request_id: Annotated[str, Meta(min_length=1)] | None = None
    model: str = MODEL_NAME
    max_tokens: Annotated[int, Meta(ge=1)] = 16
    temperature: Annotated[float, Meta(ge=0)] = 1.0
    top_k: Annotated[int, Meta(ge=0)] = 0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    min_tokens: Annotated[int, Meta(ge=0)] = 0
    seed: int = 0
    stop_token_ids: list[TokenId] = []
    stop: list[Annotated[str, Meta(min_length=1)]] = []
    """Stop strings; see `GenerateRequest.stop_strings`."""
    begun_tokens: Annotated[int, Meta(ge=0)] = 0
    """Quartet's own field: number of tokens at the end of the prompt that are the beginning of the response."""
    media: list[Media] = []
    """Quartet's own field: pictures for the placeholders in the prompt, which has one token for each part of a
    picture."""
    pictures: dict[str, bytes] = {}
    """Quartet's own field: encoded pictures by content hash."""
    part_seconds: Annotated[float, Meta(ge=0)] = 0.0
    """Quartet's own field: interval at which new tokens are sent as a line; with 0, all tokens are sent at the end."""
    sign_seconds: Annotated[float, Meta(ge=0)] = 0.0
    """Quartet's own field: seconds without data after which a healthy engine sends an empty line (keep-alive); with 0
    it sends none."""
    logprobs: int = 0
    """Number of alternatives requested for each token. It is ignored: the response has the log-prob of the sampled
    token and of no other."""
    return_token_ids: bool = True
    conversation: str = ""


class VersionSpan(Struct, frozen=True):
    """Tokens `start` .. `end - 1` of the response were sampled by policy `version`."""

    version: int
    start: int
    end: int


class Logprobs(Struct, frozen=True):
    token_logprobs: list[float]


class Choice(Struct, frozen=True, kw_only=True):
    index: int = 0
    text: str = ""
    """Text of the response; empty, since the engine does not detokenize."""
    token_ids: list[int]
    logprobs: Logprobs
    entropies: list[float] = []
    """Quartet's own field: entropy of the full softmax at temperature 1, in nats, at each token; empty if the engine
    does not report it."""
    finish_reason: FinishReason
    stop_reason: int | str | None = None
    """Stop token or stop string that ended the response."""
    weight_versions: list[VersionSpan]
    cache_versions: list[VersionSpan] = []
    """Spans of tokens whose keys and values have the same oldest policy version; empty if equal to
    `weight_versions`."""


class Usage(Struct, frozen=True, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionResponse(Struct, frozen=True, kw_only=True):
    """Response of `POST /v1/completions`, or one line of it.

    A line holds the tokens since the previous line. Its finish reason is `abort`, except in the last line, so that a
    response that breaks off counts as aborted. If the response fails and the engine can report the cause, the last line
    is an `ErrorResponse`.
    """

    id: str
    object: str = "text_completion"
    model: str = MODEL_NAME
    choices: list[Choice]
    usage: Usage


class AbortRequest(Struct, frozen=True):
    """Body of `POST /abort_requests`."""

    request_ids: list[str]


class Health(Struct, frozen=True):
    """Response of `GET /health`."""

    version: int
    active_requests: int
    cache_use: float | None = None
    """See `EngineState.cache_use`."""


class ModelCard(Struct, frozen=True, kw_only=True):
    id: str = MODEL_NAME
    object: str = "model"
    owned_by: str = "quartet"
    max_model_len: int
    vocab_size: int


class ModelList(Struct, frozen=True):
    """Response of `GET /v1/models`."""

    data: Annotated[list[ModelCard], Meta(min_length=1)]
    object: str = "list"


class ErrorBody(Struct, frozen=True):
    message: str
    type: str
    """`prompt_too_long`, `bad_request`, `model_not_found`, `engine_error`, `wrong_answer`, or `engine_ended`."""
    code: int


class ErrorResponse(Struct, frozen=True):
    error: ErrorBody


class AnswerLine(Struct, frozen=True, kw_only=True):
    """One line of a response, for the client: the fields of a `CompletionResponse` or of an `ErrorResponse`."""

    choices: list[Choice] = []
    error: ErrorBody | None = None


def to_spans(versions: list[int]) -> list[VersionSpan]:
    """Return the run-length encoding of the tokens' versions.

    >>> to_spans([3, 3, 4])
    [VersionSpan(version=3, start=0, end=2), VersionSpan(version=4, start=2, end=3)]
    """
    spans: list[VersionSpan] = []
    for version, run in groupby(versions):
        start = spans[-1].end if spans else 0
        spans.append(VersionSpan(version, start, start + len(list(run))))
    return spans


def from_spans(spans: list[VersionSpan]) -> list[int]:
    """Return the version of each token. Raises `ValueError` unless the spans cover the tokens in order, without gap or
    overlap."""
    versions: list[int] = []
    for span in spans:
        if span.start != len(versions) or span.end <= span.start:
            raise ValueError(f"weight_versions has a gap, an overlap or an empty span at token {span.start}")
        versions += [span.version] * (span.end - span.start)
    return versions
