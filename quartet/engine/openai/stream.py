"""Streamed completion: the request's body, and the tokens received so far, which are kept when the stream is
interrupted."""

import msgspec
from msgspec import Struct

from quartet.engine.base import GenerateRequest, GenerateResult
from quartet.engine.partial import rest_of, server_seed
from quartet.engine.remote.server import InferenceServer
from quartet.errors import EngineError
from quartet.types import FinishReason, TokenColumns

ROUTE = "/v1/completions"


class StreamLogprobs(Struct, frozen=True):
    token_logprobs: list[float]


class StreamChoice(Struct, frozen=True):
    text: str = ""
    token_ids: list[int] | None = None
    logprobs: StreamLogprobs | None = None
    finish_reason: str | None = None


class StreamChunk(Struct, frozen=True):
    choices: list[StreamChoice] = []
    error: object = None


class Partial:
    """Response in progress. After an interruption a new stream continues it."""

    def __init__(self) -> None:
        self.sampled = TokenColumns()
        self.text = ""
        self.finish_reason = ""
        """Finish reason that the server sent; empty until the response has ended."""
        self.aborted = False

    def add(self, choice: StreamChoice, version: int) -> None:
        token_ids = choice.token_ids or []
        logprobs = choice.logprobs.token_logprobs if choice.logprobs else []
        self.text += choice.text
        self.sampled += TokenColumns(token_ids=token_ids, logprobs=logprobs, versions=[version] * len(token_ids))
        self.finish_reason = choice.finish_reason or ""

    def result(self, request: GenerateRequest) -> GenerateResult:
        return GenerateResult.of(self.sampled, self.reason(request))

    def so_far(self) -> GenerateResult:
        return GenerateResult.of(self.sampled, FinishReason.ABORT)

    def has_ended(self, request: GenerateRequest) -> bool:
        """Return whether the response is complete; if its stream was interrupted, the finish reason may be missing."""
        return bool(self.finish_reason) or len(self.sampled) >= request.sampling.max_tokens or self._stops(request)

    def reason(self, request: GenerateRequest) -> FinishReason:
        if self.finish_reason == "stop" or self._stops(request):
            return FinishReason.STOP
        # A server that stops or is paused ends responses with "abort" on its own.
        is_cut = self.finish_reason == "abort" or (self.aborted and not self.has_ended(request))
        return FinishReason.ABORT if is_cut else FinishReason.LENGTH

    def _stops(self, request: GenerateRequest) -> bool:
        return self.sampled.token_ids[-1:] != [] and self.sampled.token_ids[-1] in request.stop_token_ids


async def read_into(
    partial: Partial, server: InferenceServer, request: GenerateRequest, version: int, *, plain: bool
) -> None:
    """Sample the rest of the response into `partial`. Cancellation closes the connection; `partial` keeps the tokens
    received until then."""
    body = completion_body(server.model, rest_of(request, partial.result(request)), plain=plain)
    async for data in server.events(ROUTE, body):
        try:
            chunk = msgspec.json.decode(data, type=StreamChunk)
        except msgspec.DecodeError as error:
            raise EngineError(f"{server.url}{ROUTE} streamed an invalid event: {error}") from error
        if chunk.error:
            raise EngineError(f"{server.url}{ROUTE} failed: {chunk.error}")
        if chunk.choices:
            partial.add(chunk.choices[0], version)


def completion_body(model: str, request: GenerateRequest, *, plain: bool) -> dict[str, object]:
    """Return the request body; `plain` restricts it to fields in OpenAI's documentation."""
    sampling = request.sampling
    # The log-prob of a greedy token is reported for the full distribution.
    whole = sampling.temperature == 0
    body: dict[str, object] = {
        "model": model,
        "prompt": request.prompt_ids,
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": 1.0 if whole else sampling.top_p,
        "stream": True,
        "logprobs": 0,
        "seed": server_seed(request),
    }
    if plain:
        return body
    return body | {
        "return_token_ids": True,
        "stop_token_ids": request.stop_token_ids,
        "ignore_eos": not request.stop_token_ids,  # with it, SGLang ignores the stop tokens, too
        "min_tokens": sampling.min_tokens,
        "top_k": -1 if whole or not sampling.top_k else sampling.top_k,
        "min_p": 0.0,  # `min_p` and `repetition_penalty` override defaults in the model's folder
        "repetition_penalty": 1.0,
    }
