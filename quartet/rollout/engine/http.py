"""Client of an engine's HTTP API; finds an engine that was restarted elsewhere, and believes no answer unchecked."""

import asyncio
import math
import time
from collections.abc import Callable
from typing import TypeVar

import aiohttp
import msgspec

from quartet.errors import EngineError, PromptTooLongError
from quartet.rollout.engine.base import GenerateRequest, GenerateResult
from quartet.rollout.engine.wire import (
    AbortRequest,
    CompletionRequest,
    CompletionResponse,
    ErrorResponse,
    Health,
    ModelCard,
    ModelList,
    from_spans,
)
from quartet.types import FinishReason

FIRST_BACKOFF_SECONDS = 0.05
MAX_BACKOFF_SECONDS = 1.0
MAX_LOGPROB_ROUNDING = 1e-3
"""A log-prob is at most 0; this much above is rounding."""

T = TypeVar("T")


class HttpEngine:
    """Implements `Engine`. `url` is asked again after every failure, so a restarted engine is found again.

    An engine that cannot be reached is tried again until `deadline_seconds` after the first failure, then the call
    raises `EngineError`; so does an answer that takes longer than `timeout_seconds`. Repeating a request is safe: its
    seed makes it draw the same.
    """

    def __init__(
        self, url: Callable[[], str | None], *, deadline_seconds: float = 30.0, timeout_seconds: float = 120.0
    ) -> None:
        self._find_url = url
        self._deadline_seconds = deadline_seconds
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=5.0)
        self._session: aiohttp.ClientSession | None = None
        self._url = ""
        self._card: ModelCard | None = None

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        body = msgspec.json.encode(_to_completion_request(request))
        answer = await self._call("POST", "/v1/completions", body, CompletionResponse)
        return _checked_result(answer, request, self._card)

    async def abort(self, request_id: str) -> None:
        await self._call("POST", "/abort_requests", msgspec.json.encode(AbortRequest([request_id])), dict)

    async def version(self) -> int:
        return (await self._call("GET", "/health", None, Health)).version

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _call(self, method: str, path: str, body: bytes | None, answer: type[T]) -> T:
        """One call; connection failures are tried again with growing pauses until the deadline."""
        deadline, backoff = None, FIRST_BACKOFF_SECONDS
        while True:
            url = ""
            try:
                url = await self._connect()
                return await self._exchange(url, method, path, body, answer)
            except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
                where = url or "an engine"
                if self._url == url:  # another call may have found the restarted engine meanwhile
                    self._url = ""
                deadline = deadline or time.monotonic() + self._deadline_seconds
                if time.monotonic() + backoff > deadline:
                    raise EngineError(
                        f"cannot reach {where} for {self._deadline_seconds:g} s: {error}",
                        "see `quartet status`; the engine's log says why it stopped",
                    ) from error
            except TimeoutError as error:
                raise EngineError(f"{url}{path} did not answer within {self._timeout.total:g} s") from error
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, MAX_BACKOFF_SECONDS)

    async def _connect(self) -> str:
        """The engine's URL; looks it up unless it is known, and then learns its vocabulary."""
        if self._url:
            return self._url
        url = self._find_url()
        if not url:
            raise aiohttp.ClientConnectionError("no engine has reported its address yet")
        self._card = (await self._exchange(url, "GET", "/v1/models", None, ModelList)).data[0]
        self._url = url
        return url

    async def _exchange(self, url: str, method: str, path: str, body: bytes | None, answer: type[T]) -> T:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=self._timeout)
        async with self._session.request(method, url + path, data=body) as response:
            content = await response.read()
            if response.status != 200:
                raise _refusal(f"{url}{path}", response.status, content)
            return _decode(f"{url}{path}", content, answer)


def _to_completion_request(request: GenerateRequest) -> CompletionRequest:
    sampling = request.sampling
    return CompletionRequest(
        prompt=request.prompt_ids,
        request_id=request.request_id,
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        seed=sampling.seed,
        stop_token_ids=request.stop_token_ids,
        conversation=request.conversation,
    )


def _decode(where: str, content: bytes, answer: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=answer)
    except msgspec.DecodeError as error:
        raise EngineError(
            f"{where} gave an answer that is none: {error}", "is another server listening there?"
        ) from error


def _refusal(where: str, status: int, content: bytes) -> EngineError:
    """The server's own words, as the error type they stand for."""
    error = _decode(where, content, ErrorResponse).error
    if error.type == "prompt_too_long":
        return PromptTooLongError(error.message)
    return EngineError(f"{where} answered {status} ({error.type}): {error.message}")


def _checked_result(answer: CompletionResponse, request: GenerateRequest, card: ModelCard | None) -> GenerateResult:
    """Raises `EngineError` unless lengths and ranges are what training relies on."""
    try:
        choice = answer.choices[0]
        result = GenerateResult(
            token_ids=choice.token_ids,
            logprobs=choice.logprobs.token_logprobs,
            versions=from_spans(choice.weight_versions),
            finish_reason=choice.finish_reason,
        )
        _check(result, request, card.vocab_size if card else math.inf)
    except (ValueError, IndexError) as error:
        raise EngineError(f"the engine's answer to {request.request_id!r} is wrong: {error}") from error
    return result


def _check(result: GenerateResult, request: GenerateRequest, vocab_size: float) -> None:
    """Raises `ValueError` that says what is wrong."""
    ids, num_tokens = result.token_ids, len(result.token_ids)
    if not num_tokens == len(result.logprobs) == len(result.versions):
        raise ValueError(f"{num_tokens} ids, {len(result.logprobs)} logprobs, {len(result.versions)} versions")
    if num_tokens > request.sampling.max_tokens:
        raise ValueError(f"{num_tokens} tokens where at most {request.sampling.max_tokens} were asked for")
    if ids and not 0 <= min(ids) <= max(ids) < vocab_size:
        raise ValueError(f"token ids from {min(ids)} to {max(ids)}, the vocabulary has {vocab_size}")
    if not all(math.isfinite(logprob) and logprob <= MAX_LOGPROB_ROUNDING for logprob in result.logprobs):
        raise ValueError("a log-prob is not a finite number of at most 0")
    if result.finish_reason == FinishReason.STOP and (not ids or ids[-1] not in request.stop_token_ids):
        raise ValueError("it stopped without a stop token")
