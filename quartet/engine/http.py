"""Client of an engine's HTTP API, which reconnects to restarted engines and validates every response."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ssl import SSLContext
from typing import TypeVar

import aiohttp
import msgspec

from quartet.access.token import bearer
from quartet.engine.base import EngineState, GenerateRequest, GenerateResult
from quartet.engine.completion import checked_result, lines_of, to_completion_request
from quartet.engine.wire import (
    MAX_BODY_BYTES,
    MODEL_NAME,
    AbortRequest,
    AnswerLine,
    ErrorBody,
    ErrorResponse,
    Health,
    ModelCard,
    ModelList,
)
from quartet.errors import EngineError, EngineUnreachableError, PromptTooLongError
from quartet.telemetry.trace import HEADER, current_trace

FIRST_BACKOFF_SECONDS = 0.05
MAX_BACKOFF_SECONDS = 1.0
PART_SECONDS = 0.25
"""Interval at which an engine sends sampled tokens. If the engine dies, the tokens since the last interval are lost."""
SIGNS_PER_SILENCE = 4
"""Number of keep-alives that a healthy engine sends per silence timeout."""
SMALL_SECONDS = 5.0
"""Timeout of all calls except generations, such as health checks. It is short, so that these calls fail early if the
engine process is frozen."""

T = TypeVar("T")


class HttpEngine:
    """`Engine` over HTTP. The function `url` is called again after every failed connection, so that a restarted engine
    is found.

    An engine streams tokens while it samples. If the engine dies, `generate` returns the received tokens with
    `FinishReason.ABORT`.

    A call is retried while the engine is unreachable; `deadline_seconds` after the first failure it raises
    `EngineUnreachableError`. A generation has no total timeout; it raises `EngineError` after `silence_seconds` without
    data or keep-alives. Retrying a request is safe, because its seed reproduces its draws.
    """

    def __init__(
        self,
        url: Callable[[], str | None],
        *,
        token: str = "",
        deadline_seconds: float = 30.0,
        silence_seconds: float = 120.0,
        part_seconds: float = PART_SECONDS,
        model: str = MODEL_NAME,
        tls: SSLContext | None = None,
    ) -> None:
        """Make a client, which connects on its first call.

        `token` is the run's access token, `model` the policy's name in requests. The engine sends new tokens every
        `part_seconds`, or with 0 only at the end. `tls` verifies an engine that serves HTTPS.
        """
        self._headers = bearer(token) | {"Content-Type": "application/json"}
        self._find_url, self._model, self._tls = url, model, tls
        self._deadline_seconds, self._part_seconds = deadline_seconds, part_seconds
        self._silence_seconds, self._small_seconds = silence_seconds, min(SMALL_SECONDS, silence_seconds)
        self._session: aiohttp.ClientSession | None = None
        self._url = ""
        self._card: ModelCard | None = None

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        sign_seconds = self._silence_seconds / SIGNS_PER_SILENCE
        body = msgspec.json.encode(to_completion_request(request, self._part_seconds, sign_seconds, self._model))
        if len(body) > MAX_BODY_BYTES:
            raise PromptTooLongError(
                f"request {request.request_id!r} has {len(body)} bytes with its {len(request.pictures)} pictures, and "
                f"engines read at most {MAX_BODY_BYTES}",
                "show fewer or smaller pictures per prompt",
            )
        parts = await self._call(lambda url: self._sample(f"{url}/v1/completions", body))
        return checked_result(parts, request, self._card.vocab_size if self._card else math.inf)

    async def abort(self, request_id: str) -> None:
        body = msgspec.json.encode(AbortRequest([request_id]))
        await self._call(lambda url: self._exchange("POST", f"{url}/abort_requests", body, dict))

    async def version(self) -> int:
        return (await self.state()).version

    async def state(self) -> EngineState:
        health = await self._call(lambda url: self._exchange("GET", f"{url}/health", None, Health))
        return EngineState(health.version, health.cache_use)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _call(self, exchange: Callable[[str], Awaitable[T]]) -> T:
        """Run one exchange; if no engine answers, retry with exponential backoff until the deadline."""
        deadline, backoff = None, FIRST_BACKOFF_SECONDS
        while True:
            url = ""
            try:
                url = await self._connect()
                return await exchange(url)
            except aiohttp.SocketTimeoutError as error:  # also a ClientError, but here the engine has the request
                self._forget(url)
                raise EngineError(f"the engine at {url} sent no data for {self._silence_seconds:g} s") from error
            except (aiohttp.ClientError, EngineUnreachableError) as error:
                where = url or "an engine"
                self._forget(url)
                deadline = deadline or time.monotonic() + self._deadline_seconds
                if time.monotonic() + backoff > deadline:
                    raise EngineUnreachableError(
                        f"could not reach {where} for {self._deadline_seconds:g} s: {error}",
                        "check `quartet status` and the engine's log",
                    ) from error
            except TimeoutError as error:
                self._forget(url)  # its machine may be gone, and another engine at another address
                raise EngineError(f"{url or 'an engine'} did not answer within {self._small_seconds:g} s") from error
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, MAX_BACKOFF_SECONDS)

    def _forget(self, url: str) -> None:
        """Look up the engine's address at the next call, unless another call has already found a restarted engine."""
        if self._url == url:
            self._url = ""

    async def _connect(self) -> str:
        """Return the engine's URL. If it is not known, look it up and read the engine's model card."""
        if self._url:
            return self._url
        url = self._find_url()
        if not url:
            raise EngineUnreachableError("no engine has reported its address yet")
        self._card = (await self._exchange("GET", f"{url}/v1/models", None, ModelList)).data[0]
        self._url = url
        return url

    async def _sample(self, url: str, body: bytes) -> list[AnswerLine]:
        """Return the lines of a response, without an error line. If the response breaks off, return the lines received
        so far.

        Raises an error if the response breaks off before its first line, or if an error line is the only line or
        reports that the response is invalid.
        """
        lines: list[AnswerLine] = []
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=self._silence_seconds)
        try:
            async with self._open("POST", url, body, timeout) as response:
                async for line in lines_of(response):
                    lines.append(_decode(url, line, AnswerLine))
        except aiohttp.ClientError:
            if not lines:
                raise
        if lines and (error := lines[-1].error) and (len(lines) == 1 or error.type == "wrong_answer"):
            raise _refusal(url, error)
        return [line for line in lines if line.error is None]

    async def _exchange(self, method: str, url: str, body: bytes | None, answer: type[T]) -> T:
        async with self._open(method, url, body, aiohttp.ClientTimeout(total=self._small_seconds)) as response:
            return _decode(url, await response.read(), answer)

    @asynccontextmanager
    async def _open(
        self, method: str, url: str, body: bytes | None, timeout: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield a response with status 200; for any other status, raise the server's error."""
        if self._session is None:
            # No limit: every rollout may have a request, and health checks and aborts must not queue behind them.
            connector = aiohttp.TCPConnector(limit=0, ssl=self._tls or True)
            self._session = aiohttp.ClientSession(connector=connector, headers=self._headers)
        headers = {HEADER: trace} if (trace := current_trace()) else None
        async with self._session.request(method, url, data=body, headers=headers, timeout=timeout) as response:
            if response.status != 200:
                raise _refusal(url, _decode(url, await response.read(), ErrorResponse).error)
            yield response


def _decode(where: str, content: bytes, answer: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EngineError(
            f"{where} sent an invalid response: {error}", "check that no other server listens there"
        ) from error


def _refusal(where: str, error: ErrorBody) -> EngineError:
    """Return a server's error as the matching exception type."""
    if error.type == "prompt_too_long":
        return PromptTooLongError(error.message)
    kind = EngineUnreachableError if error.type == "engine_ended" else EngineError
    return kind(f"{where} answered {error.code} ({error.type}): {error.message}")
