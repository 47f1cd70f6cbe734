"""Client side of a completion over HTTP: making the request, reading lines, validating the result."""

from collections.abc import AsyncIterator

import aiohttp

from quartet.engine.base import GenerateRequest, GenerateResult
from quartet.engine.partial import NOTHING
from quartet.engine.result_check import find_problem
from quartet.engine.wire import MODEL_NAME, AnswerLine, Choice, CompletionRequest, from_spans
from quartet.errors import EngineError


def to_completion_request(
    request: GenerateRequest, part_seconds: float, sign_seconds: float, model: str = MODEL_NAME
) -> CompletionRequest:
    sampling = request.sampling
    return CompletionRequest(
        model=model,
        prompt=request.prompt_ids,
        request_id=request.request_id,
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_tokens=sampling.min_tokens,
        seed=sampling.seed,
        stop_token_ids=request.stop_token_ids,
        stop=request.stop_strings,
        begun_tokens=request.begun_tokens,
        media=request.media,
        pictures=request.pictures,
        conversation=request.conversation,
        part_seconds=part_seconds,
        sign_seconds=sign_seconds,
    )


async def lines_of(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield each line as it arrives, without empty lines (keep-alives).

    A line may have any length, and the last one may lack its newline.
    """
    begun = b""
    async for chunk in response.content.iter_any():
        *lines, begun = (begun + chunk).split(b"\n")
        for line in filter(None, lines):
            yield line
    if begun:
        yield begun


def checked_result(parts: list[AnswerLine], request: GenerateRequest, vocab_size: float) -> GenerateResult:
    """Join the parts of a response. Raises `EngineError` if its lengths or values are invalid (`find_problem`)."""
    result = NOTHING
    try:
        for part in parts:
            result = result + _result(part.choices[0])
    except (ValueError, IndexError) as error:
        raise EngineError(f"the engine sent an invalid response to {request.request_id!r}: {error}") from error
    problem = find_problem(request, result, vocab_size) if parts else "sent no tokens"
    if problem:
        raise EngineError(f"the engine sent an invalid response to {request.request_id!r}: it {problem}")
    return result


def _result(choice: Choice) -> GenerateResult:
    return GenerateResult(
        token_ids=choice.token_ids,
        logprobs=choice.logprobs.token_logprobs,
        entropies=choice.entropies,
        versions=from_spans(choice.weight_versions),
        cache_versions=from_spans(choice.cache_versions),
        finish_reason=choice.finish_reason,
        stop_string=choice.stop_reason if isinstance(choice.stop_reason, str) else "",
    )
