"""The HTTP API: same answers as the engine itself, clear refusals, aborts on hang-up, recovery of the client."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from engine_models import MAX_CONTEXT_TOKENS, VOCAB_SIZE, make_model, make_requests, until
from hypothesis import given, settings
from hypothesis import strategies as st

from quartet.errors import EngineError, PromptTooLongError, SetupError
from quartet.rollout.engine.base import GenerateRequest
from quartet.rollout.engine.http import HttpEngine
from quartet.rollout.engine.server import serve
from quartet.rollout.engine.torch_engine import TorchEngine
from quartet.rollout.engine.wire import VersionSpan, from_spans, to_spans
from quartet.types import FinishReason, Sampling

Builder = Callable[..., TorchEngine]
LONG = GenerateRequest(
    request_id="long", prompt_ids=[1], sampling=Sampling(max_tokens=MAX_CONTEXT_TOKENS), stop_token_ids=[]
)


@pytest.fixture
async def client_of() -> AsyncIterator[Callable[..., HttpEngine]]:
    clients: list[HttpEngine] = []

    def build(url: str | Callable[[], str | None], **settings: float) -> HttpEngine:
        clients.append(HttpEngine(url if callable(url) else lambda: url, **settings))
        return clients[-1]

    yield build
    for client in clients:
        await client.close()


async def test_round_trip_equals_the_engine_itself(engine_of: Builder, client_of: Callable[..., HttpEngine]) -> None:
    engine = engine_of(make_model(), version=3)
    requests = make_requests(20, temperature=0.9, top_p=0.95)
    async with serve(engine) as url:
        client = client_of(url)
        assert await client.version() == 3
        over_http = await asyncio.gather(*map(client.generate, requests))
    for request, result in zip(requests, over_http, strict=True):
        direct = await engine.generate(request)
        assert (result.token_ids, result.versions, result.finish_reason) == (
            direct.token_ids,
            direct.versions,
            direct.finish_reason,
        )
        assert result.logprobs == pytest.approx(direct.logprobs, abs=1e-4)


async def test_the_answer_has_the_shape_of_vllm(engine_of: Builder) -> None:
    body = {"model": "main", "prompt": [5, 6, 7], "max_tokens": 4, "temperature": 1.0, "logprobs": 0, "seed": 1}
    body |= {"return_token_ids": True, "ignore_eos": True}  # fields we do not name are ignored
    async with serve(engine_of(make_model(), version=2)) as url, aiohttp.ClientSession() as session:
        async with session.post(f"{url}/v1/completions", json=body) as response:
            answer = await response.json()
        async with session.get(f"{url}/v1/models") as response:
            models = await response.json()
    choice = answer["choices"][0]
    assert len(choice["token_ids"]) == len(choice["logprobs"]["token_logprobs"]) == 4
    assert choice["finish_reason"] == "length"
    assert choice["weight_versions"] == [{"version": 2, "start": 0, "end": 4}]
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert models["data"][0]["max_model_len"] == MAX_CONTEXT_TOKENS


@pytest.mark.parametrize(
    ("body", "status", "kind", "says"),
    [
        ("{", 400, "bad_request", "truncated"),
        ({}, 400, "bad_request", "prompt"),
        ({"prompt": "text"}, 400, "bad_request", "prompt"),
        ({"prompt": []}, 400, "bad_request", "prompt"),
        ({"prompt": [1], "temperature": -1}, 400, "bad_request", "temperature"),
        ({"prompt": [1], "max_tokens": 0}, 400, "bad_request", "max_tokens"),
        ({"prompt": [VOCAB_SIZE]}, 400, "bad_request", "vocabulary"),
        ({"prompt": [1] * MAX_CONTEXT_TOKENS}, 400, "prompt_too_long", "no room"),
        ({"prompt": [1], "model": "other"}, 404, "model_not_found", "other"),
    ],
)
async def test_bad_requests_are_refused_in_words(
    body: Any, status: int, kind: str, says: str, engine_of: Builder
) -> None:
    text = body if isinstance(body, str) else json.dumps(body)
    async with (
        serve(engine_of(make_model())) as url,
        aiohttp.ClientSession() as session,
        session.post(f"{url}/v1/completions", data=text) as response,
    ):
        assert response.status == status
        error = (await response.json())["error"]
    assert error["type"] == kind
    assert says in error["message"]


async def test_refusals_reach_the_client_as_their_errors(
    engine_of: Builder, client_of: Callable[..., HttpEngine]
) -> None:
    async with serve(engine_of(make_model())) as url:
        client = client_of(url)
        with pytest.raises(PromptTooLongError):
            await client.generate(msgspec.structs.replace(LONG, prompt_ids=[1] * MAX_CONTEXT_TOKENS))
        with pytest.raises(EngineError, match="vocabulary"):
            await client.generate(msgspec.structs.replace(LONG, prompt_ids=[VOCAB_SIZE]))


async def test_a_client_that_hangs_up_aborts_its_request(
    engine_of: Builder, client_of: Callable[..., HttpEngine]
) -> None:
    engine = engine_of(make_model(), max_slots=1)
    async with serve(engine) as url:
        client = client_of(url)
        task = asyncio.create_task(client.generate(LONG))
        await until(lambda: engine.counters.generated_tokens > 3)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await until(lambda: engine.active_requests == 0)
        assert engine.counters.generated_tokens < MAX_CONTEXT_TOKENS - 1


async def test_abort_over_http_returns_what_there_is(engine_of: Builder, client_of: Callable[..., HttpEngine]) -> None:
    engine = engine_of(make_model())
    async with serve(engine) as url:
        client = client_of(url)
        task = asyncio.create_task(client.generate(LONG))
        await until(lambda: engine.counters.generated_tokens > 3)
        await client.abort("long")
        result = await task
    assert result.finish_reason is FinishReason.ABORT
    assert 3 < len(result.token_ids) < MAX_CONTEXT_TOKENS - 1


async def test_a_dead_engine_is_an_engine_error_after_the_deadline(
    engine_of: Builder, client_of: Callable[..., HttpEngine]
) -> None:
    async with serve(engine_of(make_model())) as url:
        client = client_of(url, deadline_seconds=0.3)
        await client.version()
    with pytest.raises(EngineError, match="cannot reach"):
        await client.generate(LONG)
    with pytest.raises(EngineError, match="no engine has reported"):
        await client_of(lambda: None, deadline_seconds=0.1).version()


async def test_an_engine_restarted_on_another_port_is_found(
    engine_of: Builder, client_of: Callable[..., HttpEngine]
) -> None:
    engine, address = engine_of(make_model(), prefix_cache_megabytes=0), {"url": ""}
    client = client_of(lambda: address["url"])
    async with serve(engine) as first:
        address["url"] = first
        before = await client.generate(make_requests(1)[0])
    waiting = asyncio.create_task(client.generate(make_requests(1)[0]))
    await asyncio.sleep(0.1)  # let it fail at the old address
    assert not waiting.done()
    async with serve(engine) as second:
        assert second != first
        address["url"] = second
        assert await waiting == before


async def test_a_request_in_flight_when_the_server_dies_is_asked_again(
    engine_of: Builder, client_of: Callable[..., HttpEngine]
) -> None:
    engine, address = engine_of(make_model()), {"url": ""}
    client = client_of(lambda: address["url"])
    async with serve(engine) as address["url"]:
        task = asyncio.create_task(client.generate(LONG))
        await until(lambda: engine.counters.generated_tokens > 3)
    async with serve(engine) as address["url"]:
        assert len((await task).token_ids) == MAX_CONTEXT_TOKENS - 1


async def test_a_port_in_use_is_told(engine_of: Builder) -> None:
    engine = engine_of(make_model())
    async with serve(engine) as url:
        with pytest.raises(SetupError, match="engine_port"):
            async with serve(engine, port=int(url.rpartition(":")[2])):
                pass


GOOD_CHOICE = {
    "token_ids": [5, 6],
    "logprobs": {"token_logprobs": [-1.0, -2.0]},
    "finish_reason": "length",
    "weight_versions": [{"version": 1, "start": 0, "end": 2}],
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"logprobs": {"token_logprobs": [-1.0]}},
        {"logprobs": {"token_logprobs": [-1.0, None]}},  # how JSON carries NaN
        {"logprobs": {"token_logprobs": [-1.0, 0.5]}},
        {"token_ids": [5, VOCAB_SIZE]},
        {"token_ids": [5, -1]},
        {"token_ids": [5, 6, 7]},
        {"weight_versions": [{"version": 1, "start": 0, "end": 1}]},
        {"weight_versions": [{"version": 1, "start": 1, "end": 2}]},
        {"finish_reason": "stop"},
        {"finish_reason": "tired"},
    ],
)
async def test_no_answer_is_believed_unchecked(wrong: dict[str, Any], client_of: Callable[..., HttpEngine]) -> None:
    """A server that answers nonsense stands in for a broken engine: ours cannot be made to."""

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"max_model_len": 256, "vocab_size": VOCAB_SIZE}]})

    async def completions(_: web.Request) -> web.Response:
        usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
        return web.json_response({"id": "a", "choices": [GOOD_CHOICE | wrong], "usage": usage})

    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_post("/v1/completions", completions)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    request = msgspec.structs.replace(LONG, sampling=Sampling(max_tokens=2))
    with pytest.raises(EngineError, match="answer"):
        await client_of(f"http://127.0.0.1:{runner.addresses[0][1]}").generate(request)
    await runner.cleanup()


@settings(deadline=None)
@given(st.lists(st.integers(0, 5)))
def test_version_spans_round_trip(versions: list[int]) -> None:
    assert from_spans(to_spans(versions)) == versions


@settings(deadline=None)
@given(st.lists(st.builds(VersionSpan, st.integers(0, 3), st.integers(0, 6), st.integers(0, 6)), max_size=4))
def test_spans_with_gaps_or_overlaps_are_refused(spans: list[VersionSpan]) -> None:
    covered = [position for span in spans for position in range(span.start, span.end)]
    if covered == list(range(len(covered))) and all(span.end > span.start for span in spans):
        assert len(from_spans(spans)) == len(covered)
    else:
        with pytest.raises(ValueError, match="gap"):
            from_spans(spans)
