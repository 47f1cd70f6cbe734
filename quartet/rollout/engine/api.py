"""The HTTP routes of a `TorchEngine`, in the shape of vLLM's API (see `wire.py` for the records).

`POST /v1/completions`, `POST /abort_requests`, `GET /health`, `GET /v1/models`. A client that hangs up aborts its
request. A bad request gets a 400 whose JSON says what is wrong; a prompt that does not fit has its own error type.
"""

import uuid
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from aiohttp import web

from quartet.errors import EngineError, PromptTooLongError
from quartet.rollout.engine.base import GenerateRequest, GenerateResult
from quartet.rollout.engine.torch_engine import RefusedRequestError, TorchEngine
from quartet.rollout.engine.wire import (
    MODEL_NAME,
    AbortRequest,
    Choice,
    CompletionRequest,
    CompletionResponse,
    ErrorBody,
    ErrorResponse,
    Health,
    Logprobs,
    ModelCard,
    ModelList,
    Usage,
    to_spans,
)
from quartet.types import Sampling

MAX_BODY_BYTES = 64 * 2**20

T = TypeVar("T", CompletionRequest, AbortRequest)


def make_app(engine: TorchEngine) -> web.Application:
    """The routes, bound to one engine."""
    handlers = Handlers(engine)
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[errors_as_json])
    app.router.add_post("/v1/completions", handlers.completions)
    app.router.add_post("/abort_requests", handlers.abort_requests)
    app.router.add_get("/health", handlers.health)
    app.router.add_get("/v1/models", handlers.models)
    return app


class Handlers:
    """One method per route."""

    def __init__(self, engine: TorchEngine) -> None:
        self._engine = engine

    async def completions(self, http_request: web.Request) -> web.Response:
        body = decode(await http_request.read(), CompletionRequest)
        if body.model != MODEL_NAME:
            return error_response(f"this engine serves {MODEL_NAME!r}, not {body.model!r}", "model_not_found", 404)
        request = to_generate_request(body)
        result = await self._engine.generate(request)
        return json_response(to_completion_response(request, result))

    async def abort_requests(self, http_request: web.Request) -> web.Response:
        for request_id in decode(await http_request.read(), AbortRequest).request_ids:
            await self._engine.abort(request_id)
        return json_response({})

    async def health(self, _: web.Request) -> web.Response:
        return json_response(Health(await self._engine.version(), self._engine.active_requests))

    async def models(self, _: web.Request) -> web.Response:
        card = ModelCard(max_model_len=self._engine.max_context_tokens, vocab_size=self._engine.vocab_size)
        return json_response(ModelList([card]))


@web.middleware
async def errors_as_json(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Every refusal and failure becomes an `ErrorResponse`."""
    try:
        return await handler(request)
    except msgspec.DecodeError as error:  # malformed JSON; a ValidationError is one too
        return error_response(f"{request.path}: {error}", "bad_request", 400)
    except PromptTooLongError as error:
        return error_response(str(error), "prompt_too_long", 400)
    except RefusedRequestError as error:
        return error_response(str(error), "bad_request", 400)
    except EngineError as error:
        return error_response(str(error), "engine_error", 500)


def decode(body: bytes, record: type[T]) -> T:
    """Raises `msgspec.ValidationError` that names the field."""
    return msgspec.json.decode(body, type=record)


def to_generate_request(body: CompletionRequest) -> GenerateRequest:
    return GenerateRequest(
        request_id=body.request_id or uuid.uuid4().hex,
        prompt_ids=body.prompt,
        sampling=Sampling(temperature=body.temperature, top_p=body.top_p, max_tokens=body.max_tokens, seed=body.seed),
        stop_token_ids=body.stop_token_ids,
        conversation=body.conversation,
    )


def to_completion_response(request: GenerateRequest, result: GenerateResult) -> CompletionResponse:
    num_prompt, num_response = len(request.prompt_ids), len(result.token_ids)
    choice = Choice(
        token_ids=result.token_ids,
        logprobs=Logprobs(result.logprobs),
        finish_reason=result.finish_reason,
        weight_versions=to_spans(result.versions),
    )
    usage = Usage(prompt_tokens=num_prompt, completion_tokens=num_response, total_tokens=num_prompt + num_response)
    return CompletionResponse(id=request.request_id, choices=[choice], usage=usage)


def json_response(record: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(record), status=status, content_type="application/json")


def error_response(message: str, kind: str, status: int) -> web.Response:
    return json_response(ErrorResponse(ErrorBody(message, kind, status)), status)
