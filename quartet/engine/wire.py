"""The engine's HTTP API as records: vLLM's `/v1/completions`, token ids in, token ids out. Server and client share it.

Only fields that Quartet uses are named; others that a vLLM client sends are ignored.
"""

from itertools import groupby
from typing import Annotated

from msgspec import Meta, Struct

from quartet.types import MAIN, FinishReason, Media

MODEL_NAME = MAIN

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
    """Stop strings."""
    begun_tokens: Annotated[int, Meta(ge=0)] = 0
    """Ours: so many of the prompt's last tokens are the response's beginning."""
    media: list[Media] = []
    """Ours: the pictures that placeholders of the prompt stand for. The placeholders are expanded already."""
    pictures: dict[str, bytes] = {}
    """Ours: these pictures, encoded, by content hash."""
    part_seconds: Annotated[float, Meta(ge=0)] = 0.0
    """Ours: while it samples, what is new comes as a line of its own this often; 0: all comes at once."""
    sign_seconds: Annotated[float, Meta(ge=0)] = 0.0
    """Ours: when nothing came for this long and the engine is well, an empty line says so; 0: none does."""
    logprobs: int = 0
    """0: the sampled token's alone, always given."""
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
    """Ours: one per token, of the whole softmax at temperature 1, in nats; a server may send none."""
    finish_reason: FinishReason
    stop_reason: int | str | None = None
    """The stop token or stop string that ended the response."""
    weight_versions: list[VersionSpan]
    cache_versions: list[VersionSpan] = []
    """Of the oldest weights whose keys and values a token was sampled from; empty where they are its own."""


class Usage(Struct, frozen=True, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionResponse(Struct, frozen=True, kw_only=True):
    """Answer of `POST /v1/completions`, or a line of it: then it has what was sampled since the line before, and its
    finish reason is `abort` but in the last line. So an answer that breaks off is an abort. Where the engine could say
    why, the last line is an `ErrorResponse`."""

    id: str
    object: str = "text_completion"
    model: str = MODEL_NAME
    choices: list[Choice]
    usage: Usage


class AbortRequest(Struct, frozen=True):
    """Body of `POST /abort_requests`."""

    request_ids: list[str]


class Health(Struct, frozen=True):
    """Answer of `GET /health`."""

    version: int
    active_requests: int


class ModelCard(Struct, frozen=True, kw_only=True):
    id: str = MODEL_NAME
    object: str = "model"
    owned_by: str = "quartet"
    max_model_len: int
    vocab_size: int


class ModelList(Struct, frozen=True):
    """Answer of `GET /v1/models`."""

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
    """What the client reads of a line: a `CompletionResponse` or an `ErrorResponse`."""

    choices: list[Choice] = []
    error: ErrorBody | None = None


def to_spans(versions: list[int]) -> list[VersionSpan]:
    """Run-length form of a version per token.

    >>> to_spans([3, 3, 4])
    [VersionSpan(version=3, start=0, end=2), VersionSpan(version=4, start=2, end=3)]
    """
    spans: list[VersionSpan] = []
    for version, run in groupby(versions):
        start = spans[-1].end if spans else 0
        spans.append(VersionSpan(version, start, start + len(list(run))))
    return spans


def from_spans(spans: list[VersionSpan]) -> list[int]:
    """One version per token. Raises `ValueError` unless the spans cover the tokens in order, without gap or overlap."""
    versions: list[int] = []
    for span in spans:
        if span.start != len(versions) or span.end <= span.start:
            raise ValueError(f"weight_versions has a gap, an overlap or an empty span at token {span.start}")
        versions += [span.version] * (span.end - span.start)
    return versions
