"""HTTP responses of an engine: one JSON body, a stream of lines, or an error.

Each line of a stream holds new tokens. If an engine dies, the client continues from the tokens of the lines that it
received. A healthy engine sends an empty line as a keep-alive. If the engine cannot finish a response, the last line is
an error.
"""

import time

import msgspec
from aiohttp import web

from quartet.engine.base import GenerateRequest, GenerateResult
from quartet.engine.partial import NOTHING
from quartet.engine.wire import (
    Choice,
    CompletionResponse,
    ErrorBody,
    ErrorResponse,
    Logprobs,
    Usage,
    to_spans,
)
from quartet.errors import EngineError
from quartet.types import FinishReason


class AnswerInParts:
    """Response to one request: call `add` (new tokens) and `sign` (keep-alive) any number of times, then `end` or
    `break_off`.

    If `end` is called before anything was sent, the response is one plain JSON body.
    """

    def __init__(self, http_request: web.Request, request: GenerateRequest) -> None:
        self._http_request, self._request = http_request, request
        self._sent, self._sent_at = NOTHING, time.monotonic()
        self._response = web.StreamResponse(headers={"Content-Type": "application/jsonl"})

    @property
    def begun(self) -> bool:
        return self._response.prepared

    @property
    def silent_seconds(self) -> float:
        """Seconds since data was last sent."""
        return time.monotonic() - self._sent_at

    async def add(self, so_far: GenerateResult) -> None:
        """Send the tokens of `so_far` that were not sent yet, except the newest, which may be the last of the response.

        Raises `EngineError`, as `end` does, if the response restarted without the tokens that were already sent.
        """
        part = self._new(so_far, len(so_far) - 1)
        if part.token_ids:
            await self._send(part)

    async def sign(self) -> None:
        """Send a keep-alive."""
        await self._write(b"")

    async def end(self, result: GenerateResult) -> web.StreamResponse:
        """Send the remaining tokens and finish the response."""
        rest = self._new(result, len(result))
        if not self.begun:
            return json_response(to_completion_response(self._request, rest))
        await self._send(rest)
        await self._response.write_eof()
        return self._response

    async def break_off(self, error: ErrorBody) -> web.StreamResponse:
        """Send `error` as the last line and finish the response."""
        await self._write(msgspec.json.encode(ErrorResponse(error)))
        await self._response.write_eof()
        return self._response

    def _new(self, result: GenerateResult, end: int) -> GenerateResult:
        count = len(self._sent)
        if (result.token_ids[:count], result.versions[:count]) != (self._sent.token_ids, self._sent.versions):
            raise EngineError("the response restarted: the policy that sampled its first tokens was rolled back")
        return result[count:end]

    async def _send(self, part: GenerateResult) -> None:
        await self._write(msgspec.json.encode(to_completion_response(self._request, part)))
        self._sent = self._sent + part

    async def _write(self, line: bytes) -> None:
        if not self.begun:
            await self._response.prepare(self._http_request)
        await self._response.write(line + b"\n")
        self._sent_at = time.monotonic()


def to_completion_response(request: GenerateRequest, result: GenerateResult) -> CompletionResponse:
    num_prompt, num_response = len(request.prompt_ids), len(result)
    stopped = result.finish_reason is FinishReason.STOP
    choice = Choice(
        token_ids=result.token_ids,
        logprobs=Logprobs(result.logprobs),
        entropies=result.entropies,
        finish_reason=result.finish_reason,
        stop_reason=(result.stop_string or result.token_ids[-1]) if stopped else None,
        weight_versions=to_spans(result.versions),
        cache_versions=to_spans(result.cache_versions),
    )
    usage = Usage(prompt_tokens=num_prompt, completion_tokens=num_response, total_tokens=num_prompt + num_response)
    return CompletionResponse(id=request.request_id, choices=[choice], usage=usage)


def json_response(record: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(record), status=status, content_type="application/json")


def error_response(error: ErrorBody) -> web.Response:
    return json_response(ErrorResponse(error), error.code)
