"""HTTP routes of an engine, in the shape of vLLM's API (records in `wire.py`).

The routes are `POST /v1/completions`, `POST /abort_requests`, `GET /health` and `GET /v1/models`. If a client
disconnects, its request is aborted. A bad request gets status 400 with the reason in JSON; a prompt that is too long
has its own error type. A failed request gets status 500, or 503 if the engine has ended; the client then retries at
this or at another engine. A stopping server returns the tokens sampled so far with finish reason `abort`, and the
client continues at another engine. If a request sets `sign_seconds`, a healthy engine sends an empty line as keep-alive
when it has sent no other data for that time.
"""

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TypeVar

import msgspec
from aiohttp import web

from quartet.engine.answer import AnswerInParts, error_response, json_response
from quartet.engine.base import GenerateRequest, ServedEngine
from quartet.engine.wire import (
    MAX_BODY_BYTES,
    MODEL_NAME,
    AbortRequest,
    CompletionRequest,
    ErrorBody,
    Health,
    ModelCard,
    ModelList,
)
from quartet.errors import EngineError, PromptTooLongError, RefusedRequestError, WrongAnswerError
from quartet.telemetry.concurrent_clients import ConcurrentClients
from quartet.telemetry.lanes import Lanes
from quartet.telemetry.record import Recorder
from quartet.telemetry.trace import HEADER
from quartet.types import Sampling

LOG = logging.getLogger(__name__)
DRAIN_TIMEOUT_SECONDS, DRAIN_POLL_SECONDS = 3.0, 0.01

T = TypeVar("T", CompletionRequest, AbortRequest)


def make_app(engine: ServedEngine, recorder: Recorder | None = None, *, model: str = MODEL_NAME) -> web.Application:
    """Return an application with the routes of one engine; `model` is the policy's name in requests.

    With a recorder, intervals with requests in flight are recorded as spans, and so is each request that names a trace.
    """
    handlers = Handlers(engine, recorder, model)
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[handlers.errors_as_json])
    app.on_shutdown.append(handlers.drain)
    app.router.add_post("/v1/completions", handlers.completions)
    app.router.add_post("/abort_requests", handlers.abort_requests)
    app.router.add_get("/health", handlers.health)
    app.router.add_get("/v1/models", handlers.models)
    return app


class Handlers:
    """Request handlers: one method for each route, one for errors, one for shutdown."""

    def __init__(self, engine: ServedEngine, recorder: Recorder | None, model: str) -> None:
        self._model = model
        self._engine, self._recorder, self._lanes = engine, recorder, Lanes("request")
        self._in_flight = Counter[str]()  # a duplicate id counts too, until the engine rejects its request
        self._served = ConcurrentClients(recorder, "serve", "requests").join if recorder else nullcontext

    async def completions(self, http_request: web.Request) -> web.StreamResponse:
        body = decode(await http_request.read(), CompletionRequest)
        if body.model != self._model:
            message = f"this engine serves {self._model!r}, not {body.model!r}"
            return error_response(ErrorBody(message, "model_not_found", 404))
        request = to_generate_request(body)
        self._in_flight[request.request_id] += 1
        try:
            with self._served(), self._answering(http_request.headers.get(HEADER, "")):
                return await self._answer(AnswerInParts(http_request, request), request, body)
        finally:
            self._in_flight -= Counter([request.request_id])

    async def _answer(
        self, answer: AnswerInParts, request: GenerateRequest, body: CompletionRequest
    ) -> web.StreamResponse:
        sampling = asyncio.create_task(self._engine.generate(request))
        poll_seconds = min(filter(None, (body.part_seconds, body.sign_seconds)), default=None)
        try:
            while not (await asyncio.wait({sampling}, timeout=poll_seconds))[0]:
                if body.part_seconds:
                    await answer.add(self._engine.so_far(request.request_id))
                if body.sign_seconds and answer.silent_seconds >= body.sign_seconds:
                    await self._engine.version()  # raises if the engine has ended
                    await answer.sign()
            return await answer.end(sampling.result())
        except EngineError as error:
            if not answer.begun:
                raise
            LOG.warning("request %r: response failed after its first part: %s", request.request_id, error)
            return await answer.break_off(await self._failure(error))
        finally:
            sampling.cancel()

    @contextmanager
    def _answering(self, trace: str) -> Iterator[None]:
        """Record a span of the request in `trace`, which the client names; "" if the client records no spans."""
        if self._recorder is None or not trace:
            yield
            return
        with self._lanes.take() as lane, self._recorder.span("answer", lane=lane, trace=trace):
            yield

    async def abort_requests(self, http_request: web.Request) -> web.Response:
        for request_id in decode(await http_request.read(), AbortRequest).request_ids:
            await self._engine.abort(request_id)
        return json_response({})

    async def drain(self, _: web.Application) -> None:
        """Drain the engine at shutdown: end each request with the tokens sampled so far.

        Requests that do not end within `DRAIN_TIMEOUT_SECONDS` lose their connection.
        """
        try:
            await asyncio.wait_for(self._end_requests(), DRAIN_TIMEOUT_SECONDS)
        except (TimeoutError, EngineError) as error:
            cause = str(error) or f"timeout after {DRAIN_TIMEOUT_SECONDS:g} s"
            LOG.warning("drain failed, %d requests in flight: %s", self._in_flight.total(), cause)

    async def _end_requests(self) -> None:
        """Abort all requests, repeatedly, since a request may not have reached the engine yet."""
        while self._in_flight:
            for request_id in list(self._in_flight):
                await self._engine.abort(request_id)
            await asyncio.sleep(DRAIN_POLL_SECONDS)

    async def health(self, _: web.Request) -> web.Response:
        state = await self._engine.state()
        return json_response(Health(state.version, self._engine.active_requests, state.cache_use))

    async def models(self, _: web.Request) -> web.Response:
        card = ModelCard(
            id=self._model, max_model_len=self._engine.max_context_tokens, vocab_size=self._engine.vocab_size
        )
        return json_response(ModelList([card]))

    @web.middleware
    async def errors_as_json(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Return the engine's errors, and bodies that cannot be decoded, as an `ErrorResponse`."""
        try:
            return await handler(request)
        # Malformed JSON, a value of the wrong type, invalid UTF-8, brackets nested too deeply.
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return error_response(ErrorBody(f"{request.path}: {error}", "bad_request", 400))
        except PromptTooLongError as error:
            return error_response(ErrorBody(str(error), "prompt_too_long", 400))
        except RefusedRequestError as error:
            return error_response(ErrorBody(str(error), "bad_request", 400))
        except EngineError as error:
            return error_response(await self._failure(error))

    async def _failure(self, error: EngineError) -> ErrorBody:
        """Return the error's body, with status 503 if the engine has ended, so that no request can succeed.

        The process of an ended engine stops at its next tick; until then its server still responds.
        """
        if isinstance(error, WrongAnswerError):
            return ErrorBody(str(error), "wrong_answer", 500)
        try:
            await self._engine.version()
        except EngineError:
            return ErrorBody(str(error), "engine_ended", 503)
        return ErrorBody(str(error), "engine_error", 500)


def decode(body: bytes, record: type[T]) -> T:
    """Decode a body. Raises `msgspec.ValidationError`, which names the invalid field."""
    return msgspec.json.decode(body, type=record)


def to_generate_request(body: CompletionRequest) -> GenerateRequest:
    return GenerateRequest(
        request_id=body.request_id or uuid.uuid4().hex,
        prompt_ids=body.prompt,
        sampling=Sampling(
            temperature=body.temperature,
            top_k=body.top_k,
            top_p=body.top_p,
            min_tokens=body.min_tokens,
            max_tokens=body.max_tokens,
            seed=body.seed,
        ),
        stop_token_ids=body.stop_token_ids,
        stop_strings=body.stop,
        begun_tokens=body.begun_tokens,
        media=body.media,
        pictures=body.pictures,
        conversation=body.conversation,
    )
