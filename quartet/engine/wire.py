"""HTTP records of the engine API: vLLM's `/v1/completions`, token ids in and out. Server and client share them.

Only fields that Quartet uses are declared; others that a vLLM client sends are ignored.
"""

from itertools import groupby
from typing import Annotated

from msgspec import Meta, Struct

from quartet.types import MAIN, FinishReason, Media

MODEL_NAME = MAIN
MAX_BODY_BYTES = 64 * 2**20
"""Of a request, with its pictures in base64."""

TokenId = Annotated[int, Meta(ge=0)]


class CompletionRequest(Struct, frozen=True, kw_only=True):
    """Body of `POST /v1/completions`."""

    prompt: Annotated[list[TokenId], Meta(min_length=1)]
    """Token ids; text is refused, because it would be tokenized a second time."""
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
    """Quartet's own field: number of the prompt's last tokens that are the response's beginning."""
    media: list[Media] = []
    """Quartet's own field: pictures for the placeholders in the prompt, which are already expanded."""
    pictures: dict[str, bytes] = {}
    """Quartet's own field: encoded pictures by content hash."""
    part_seconds: Annotated[float, Meta(ge=0)] = 0.0
    """Quartet's own field: interval at which new tokens are sent as a line; 0: all at the end."""
    sign_seconds: Annotated[float, Meta(ge=0)] = 0.0
    """Quartet's own field: silence after which a healthy engine sends an empty line (keep-alive); 0: never."""
    logprobs: int = 0
    """0: log-prob of the sampled token only, always returned."""
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
    """Always empty: nothing is detokenized."""
    token_ids: list[int]
    logprobs: Logprobs
    entropies: list[float] = []
    """Quartet's own field: one per token, of the full softmax at temperature 1, in nats; a server may send none."""
    finish_reason: FinishReason
    stop_reason: int | str | None = None
    """Stop token or stop string that ended the response."""
    weight_versions: list[VersionSpan]
    cache_versions: list[VersionSpan] = []
    """Oldest version of the keys and values that a token was sampled from; empty if equal to `weight_versions`."""


class Usage(Struct, frozen=True, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionResponse(Struct, frozen=True, kw_only=True):
    """Response of `POST /v1/completions`, or one line of it.

    A line holds the tokens since the line before; its finish reason is `abort`, except in the last line. A response
    that breaks off therefore counts as aborted. If the engine can report the cause, the last line is an
    `ErrorResponse`.
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
    """One line as the client reads it: a `CompletionResponse` or an `ErrorResponse`."""

    choices: list[Choice] = []
    error: ErrorBody | None = None


def to_spans(versions: list[int]) -> list[VersionSpan]:
    """Return the run-length encoding of a version per token.

    >>> to_spans([3, 3, 4])
    [VersionSpan(version=3, start=0, end=2), VersionSpan(version=4, start=2, end=3)]
    """
    spans: list[VersionSpan] = []
    for version, run in groupby(versions):
        start = spans[-1].end if spans else 0
        spans.append(VersionSpan(version, start, start + len(list(run))))
    return spans


def from_spans(spans: list[VersionSpan]) -> list[int]:
    """Return one version per token. Raises `ValueError` unless the spans cover the tokens in order, without gap or
    overlap."""
    versions: list[int] = []
    for span in spans:
        if span.start != len(versions) or span.end <= span.start:
            raise ValueError(f"weight_versions has a gap, an overlap or an empty span at token {span.start}")
        versions += [span.version] * (span.end - span.start)
    return versions
