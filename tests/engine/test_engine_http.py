"""The HTTP API: same answers as the engine itself, clear refusals, aborts on hang-up, recovery of the client."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from threading import Event
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from engine_models import (
    MAX_CONTEXT_TOKENS,
    VOCAB_SIZE,
    Gate,
    make_model,
    make_requests,
    make_tokenizer,
    publish,
    until_healthy,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from quartet.engine.api import make_app
from quartet.engine.base import GenerateRequest, GenerateResult
from quartet.engine.http import HttpEngine
from quartet.engine.router import Router
from quartet.engine.server import serve
from quartet.engine.torch_engine import TorchEngine
from quartet.engine.wire import VersionSpan, from_spans, to_spans
from quartet.errors import EngineError, EngineUnreachableError, PromptTooLongError, SetupError
from quartet.types import FinishReason, Sampling
from tests.rollout.serving import HEADERS, TOKEN, serving
from tests.waiting import until

pytestmark = pytest.mark.slow

Builder = Callable[..., TorchEngine]
LONG = GenerateRequest(
    request_id="long", prompt_ids=[1], sampling=Sampling(max_tokens=MAX_CONTEXT_TOKENS), stop_token_ids=[]
)


def standing_in(completions: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.Application:
    """A server for an engine that ours cannot be made to be."""

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"max_model_len": 256, "vocab_size": VOCAB_SIZE}]})

    async def health(_: web.Request) -> web.Response:
        return web.json_response({"version": 0, "active_requests": 0})

    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_get("/health", health)
    app.router.add_post("/v1/completions", completions)
    return app


@pytest.fixture
async def client_of() -> AsyncIterator[Callable[..., HttpEngine]]:
    clients: list[HttpEngine] = []

    def build(url: str | Callable[[], str | None], **settings: float) -> HttpEngine:
        clients.append(HttpEngine(url if callable(url) else lambda: url, token=TOKEN, **settings))
        return clients[-1]

    yield build
    for client in clients:
        await client.close()


async def test_round_trip_equals_the_engine_itself(engine_of: Builder, client_of: Callable[..., HttpEngine]) -> None:
    engine = engine_of(make_model(), version=3, tokenizer=make_tokenizer())
    requests = make_requests(20, temperature=0.9, top_p=0.95, top_k=40, min_tokens=1)
    requests = [replace(r, stop_strings=["e", "a"], stop_token_ids=[7, r.prompt_ids[0]]) for r in requests]
    async with serve(engine, token=TOKEN) as url:
        client = client_of(url)
        assert await client.version() == 3
        over_http = await asyncio.gather(*map(client.generate, requests))
    for request, result in zip(requests, over_http, strict=True):
        direct = await engine.generate(request)
        assert (result.token_ids, result.versions) == (direct.token_ids, direct.versions)
        assert (result.finish_reason, result.stop_string) == (direct.finish_reason, direct.stop_string)
        assert result.logprobs == pytest.approx(direct.logprobs, abs=1e-4)
        assert result.entropies == pytest.approx(direct.entropies, abs=1e-4)
        assert len(result.entropies) == len(result.token_ids)
    assert {result.stop_string for result in over_http} == {"", "e", "a"}


async def test_an_answer_in_parts_is_the_whole_answer(engine_of: Builder, client_of: Callable[..., HttpEngine]) -> None:
    engine = engine_of(make_model())
    direct = await engine.generate(LONG)
    async with serve(engine, token=TOKEN) as url:
        result = await client_of(url, part_seconds=0.001).generate(LONG)
        body = {"prompt": LONG.prompt_ids, "max_tokens": 200, "seed": LONG.sampling.seed, "part_seconds": 0.001}
        async with (
            aiohttp.ClientSession(headers=HEADERS) as session,
            session.post(f"{url}/v1/completions", json=body) as response,
        ):
            lines = [json.loads(line)["choices"][0] for line in (await response.text()).splitlines()]
    assert (result.token_ids, result.versions, result.finish_reason) == (
        direct.token_ids,
        direct.versions,
        direct.finish_reason,
    )
    assert result.logprobs == pytest.approx(direct.logprobs, abs=1e-4)
    assert result.entropies == pytest.approx(direct.entropies, abs=1e-4)
    assert len(lines) > 1
    assert [line["finish_reason"] for line in lines] == ["abort"] * (len(lines) - 1) + ["length"]
    assert [token for line in lines for token in line["token_ids"]] == direct.token_ids[:200]


async def test_a_request_that_waits_for_a_slot_is_no_silence(
    engine_of: Builder, client_of: Callable[..., HttpEngine]
) -> None:
    """Nor is one that is told only at its end: the engine is held until signs of life have come several times."""
    engine = engine_of(make_model(), max_slots=1)
    gate, signs, version = Gate(engine, tokens=3), 0, engine.version

    async def counted() -> int:
        nonlocal signs
        signs += 1
        return await version()

    engine.version = counted  # type: ignore[method-assign]
    async with serve(engine, token=TOKEN) as url:
        client = client_of(url, silence_seconds=2.0, part_seconds=0.0)
        tasks = [asyncio.create_task(client.generate(replace(LONG, request_id=f"r{n}"))) for n in range(2)]
        await gate.reached()
        await until(lambda: signs > 10)
        await gate.open()
        results = await asyncio.gather(*tasks)
    assert results[0].token_ids == results[1].token_ids == (await engine.generate(LONG)).token_ids


async def test_an_engine_that_is_not_well_breaks_off_and_says_why(
    engine_of: Builder, client_of: Callable[..., HttpEngine]
) -> None:
    engine = engine_of(make_model())
    gate, signs = Gate(engine, tokens=3), 0

    async def well_twice() -> int:
        nonlocal signs
        signs += 1
        if signs > 2:
            raise EngineError("the server does not answer /health")
        return 0

    engine.version = well_twice  # type: ignore[method-assign]
    async with serve(engine, token=TOKEN) as url:
        client = client_of(url, silence_seconds=2.0, part_seconds=0.0, deadline_seconds=0.1)
        with pytest.raises(EngineUnreachableError, match=r"engine_ended.*/health"):
            await client.generate(LONG)
        await gate.open()


@pytest.mark.parametrize("tokens", [20, 100])
async def test_an_answer_in_parts_does_not_mix_what_was_told_before_a_roll_back(
    tokens: int, engine_of: Builder, tmp_path: Path
) -> None:
    """What was told of version 5 is thrown away, and the response begins again as version 3 samples it."""
    engine, quiet = engine_of(make_model(), version=5), engine_of(make_model(seed=1), version=3)
    folder, gate, told = publish(make_model(seed=1), tmp_path / "policy"), Gate(engine, tokens), Event()
    so_far = engine.so_far

    def telling(request_id: str) -> GenerateResult:
        result = so_far(request_id)
        if len(result.token_ids) > 1:
            told.set()
        return result

    engine.so_far = telling  # type: ignore[method-assign]
    async with serve(engine, token=TOKEN) as url:
        router = Router({"a": HttpEngine(lambda: url, token=TOKEN, part_seconds=0.01)}, probe_seconds=0.01)
        task = asyncio.create_task(router.generate(LONG))
        await gate.reached()
        await until(told.is_set)
        loading = asyncio.create_task(engine.load_policy(folder, 3))
        await gate.open(commands=1)
        await loading
        result = await task
        await router.close()
    expected = await quiet.generate(LONG)
    assert (result.token_ids, set(result.versions)) == (expected.token_ids, {3})
    assert result.finish_reason is expected.finish_reason


async def test_the_answer_has_the_shape_of_vllm(engine_of: Builder) -> None:
    body = {"model": "main", "prompt": [5, 6, 7], "max_tokens": 4, "temperature": 1.0, "logprobs": 0, "seed": 1}
    body |= {"return_token_ids": True, "ignore_eos": True}  # fields we do not name are ignored
    async with (
        serve(engine_of(make_model(), version=2), token=TOKEN) as url,
        aiohttp.ClientSession(headers=HEADERS) as session,
    ):
        async with session.post(f"{url}/v1/completions", json=body) as response:
            answer = await response.json()
        async with session.get(f"{url}/v1/models") as response:
            models = await response.json()
    choice = answer["choices"][0]
    assert len(choice["token_ids"]) == len(choice["logprobs"]["token_logprobs"]) == 4
    assert (choice["finish_reason"], choice["stop_reason"]) == ("length", None)
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
        ({"prompt": [1], "top_k": -1}, 400, "bad_request", "top_k"),
        ({"prompt": [1], "min_tokens": 17}, 400, "bad_request", "min_tokens"),
        ({"prompt": [1], "stop": [""]}, 400, "bad_request", "stop"),
        ({"prompt": [1], "stop": ["x"]}, 400, "bad_request", "without a tokenizer"),
        ({"prompt": [VOCAB_SIZE]}, 400, "bad_request", "vocabulary"),
        ({"prompt": [1] * MAX_CONTEXT_TOKENS}, 400, "prompt_too_long", "no room"),
        ({"prompt": [1], "model": "other"}, 404, "model_not_found", "other"),
    ],
)
async def test_invalid_requests_are_refused_with_a_message(
    body: Any, status: int, kind: str, says: str, engine_of: Builder
) -> None:
    text = body if isinstance(body, str) else json.dumps(body)
    async with (
        serve(engine_of(make_model()), token=TOKEN) as url,
        aiohttp.ClientSession(headers=HEADERS) as session,
        session.post(f"{url}/v1/completions", data=text) as response,
    ):
        assert response.status == status
        error = (await response.json())["error"]
    assert error["type"] == kind
    assert says in error["message"]


async def test_refusals_reach_the_client_as_their_errors(
    engine_of: Builder, client_of: Callable[..., HttpEngine]
) -> None:
    async with serve(engine_of(make_model()), token=TOKEN) as url:
        client = client_of(url)
        with pytest.raises(PromptTooLongError):
            await client.generate(replace(LONG, prompt_ids=[1] * MAX_CONTEXT_TOKENS))
        with pytest.raises(EngineError, match="vocabulary"):
            await client.generate(replace(LONG, prompt_ids=[VOCAB_SIZE]))


async def test_a_client_that_hangs_up_aborts_its_request(
    engine_of: Builder, client_of: Callable[..., HttpEngine]
) -> None:
    engine = engine_of(make_model(), max_slots=1)
    async with serve(engine, token=TOKEN) as url:
        client = client_of(url)
        task = asyncio.create_task(client.generate(LONG))
        await until(lambda: engine.counters.generated_tokens > 3)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await until(lambda: engine.active_requests == 0)
        assert engine.counters.generated_tokens < MAX_CONTEXT_TOKENS - 1


async def test_abort_over_http_returns_what_there_is(engine_of: Builder, client_of: Callable[..., HttpEngine]) -> None:
    engine = engine_of(make_model())
    async with serve(engine, token=TOKEN) as url:
        client = client_of(url)
        task = asyncio.create_task(client.generate(LONG))
        await until(lambda: engine.counters.generated_tokens > 3)
        await client.abort("long")
        result = await task
    assert result.finish_reason is FinishReason.ABORT
    count = len(result.token_ids)
    assert 3 < count < MAX_CONTEXT_TOKENS - 1
    assert count == len(result.logprobs) == len(result.entropies) == len(result.versions)
    whole = await engine.generate(LONG)
    assert result.token_ids == whole.token_ids[:count]


async def test_a_request_whose_id_came_twice_is_handed_over_too(
    engine_of: Builder, client_of: Callable[..., HttpEngine]
) -> None:
    engine = engine_of(make_model())
    async with serve(engine, token=TOKEN) as url:
        client, gate = client_of(url), Gate(engine, tokens=5)
        task = asyncio.create_task(client.generate(LONG))
        await gate.reached()
        with pytest.raises(EngineError, match="in flight"):
            await client.generate(LONG)
        opening = asyncio.create_task(gate.open(commands=1))
    await opening
    result = await task
    assert result.finish_reason is FinishReason.ABORT
    assert 5 <= len(result.token_ids) < MAX_CONTEXT_TOKENS - 1


async def test_abort_over_http_of_a_request_that_waits_returns_nothing(
    engine_of: Builder, client_of: Callable[..., HttpEngine]
) -> None:
    engine = engine_of(make_model(), max_slots=1)
    async with serve(engine, token=TOKEN) as url:
        client = client_of(url)
        first = asyncio.create_task(client.generate(LONG))
        await until(lambda: engine.counters.generated_tokens > 3)
        waiting = asyncio.create_task(client.generate(replace(LONG, request_id="waiting")))
        await until(lambda: engine.active_requests == 2)
        await client.abort("waiting")
        result = await waiting
        await client.abort("long")
        await first
    assert (result.finish_reason, result.token_ids, result.logprobs) == (FinishReason.ABORT, [], [])


async def test_a_dead_engine_is_an_engine_error_after_the_deadline(
    engine_of: Builder, client_of: Callable[..., HttpEngine]
) -> None:
    async with serve(engine_of(make_model()), token=TOKEN) as url:
        client = client_of(url, deadline_seconds=0.3)
        await client.version()
    with pytest.raises(EngineError, match="could not reach"):
        await client.generate(LONG)
    with pytest.raises(EngineError, match="no engine has reported"):
        await client_of(lambda: None, deadline_seconds=0.1).version()


async def test_an_engine_restarted_on_another_port_is_found(
    engine_of: Builder, client_of: Callable[..., HttpEngine]
) -> None:
    engine, address = engine_of(make_model(), prefix_cache_megabytes=0), {"url": ""}
    client = client_of(lambda: address["url"])
    async with serve(engine, token=TOKEN) as first:
        address["url"] = first
        before = await client.generate(make_requests(1)[0])
    waiting = asyncio.create_task(client.generate(make_requests(1)[0]))
    await asyncio.sleep(0.1)  # let it fail at the old address
    assert not waiting.done()
    async with serve(engine, token=TOKEN) as second:
        assert second != first
        address["url"] = second
        assert await waiting == before


async def test_an_engine_whose_machine_went_silent_is_found_at_its_new_address(
    engine_of: Builder, client_of: Callable[..., HttpEngine]
) -> None:
    silent = asyncio.Event()

    async def health(_: web.Request) -> web.Response:
        await silent.wait()
        return web.json_response({"version": 0, "active_requests": 0})

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"max_model_len": 256, "vocab_size": VOCAB_SIZE}]})

    old, address = web.Application(), {"url": ""}
    old.router.add_get("/v1/models", models)
    old.router.add_get("/health", health)
    client = client_of(lambda: address["url"], silence_seconds=0.2)
    async with serving(old) as url, serve(engine_of(make_model()), token=TOKEN) as new:
        address["url"] = url
        with pytest.raises(EngineError, match="did not answer within"):
            await client.version()
        address["url"] = new
        assert await client.version() == 0
        silent.set()


async def test_a_request_in_flight_when_the_server_dies_is_asked_again(
    engine_of: Builder, client_of: Callable[..., HttpEngine]
) -> None:
    engine, address = engine_of(make_model()), {"url": ""}
    client, app = client_of(lambda: address["url"], part_seconds=0.0), make_app(engine)
    app.on_shutdown.clear()  # it has no time to hand anything over
    async with serving(app) as address["url"]:
        task = asyncio.create_task(client.generate(LONG))
        await until(lambda: engine.counters.generated_tokens > 3)
    async with serve(engine, token=TOKEN) as address["url"]:
        assert len((await task).token_ids) == MAX_CONTEXT_TOKENS - 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_an_engine_that_has_ended_behind_its_server_is_waited_for(
    engine_of: Builder, client_of: Callable[..., HttpEngine]
) -> None:
    """Its process ends only at its next look; until then every request would be refused at once."""
    ended, restarted, address = engine_of(make_model()), engine_of(make_model()), {"url": ""}
    client, requests = client_of(lambda: address["url"]), make_requests(4)
    ended.forward.extend = lambda _: 1 / 0  # type: ignore[method-assign]
    async with serve(ended, token=TOKEN) as address["url"]:
        tasks = [asyncio.create_task(client.generate(request)) for request in requests]
        await until_healthy(ended, healthy=False)
        with pytest.raises(EngineError, match=r"503 \(engine_ended\)"):
            await client_of(address["url"], deadline_seconds=0.1).version()
        assert not any(task.done() for task in tasks)
        async with serve(restarted, token=TOKEN) as address["url"]:
            results = await asyncio.gather(*tasks)
    for request, result in zip(requests, results, strict=True):
        assert len(result.token_ids) == request.sampling.max_tokens


async def test_any_number_of_requests_reaches_the_engine_at_once(client_of: Callable[..., HttpEngine]) -> None:
    """A server that never answers stands in for an engine with many slots. More than aiohttp's own limit of 100."""
    arrived = 0

    async def completions(_: web.Request) -> web.Response:
        nonlocal arrived
        arrived += 1
        await asyncio.Event().wait()
        return web.Response()

    async with serving(standing_in(completions)) as url:
        client = client_of(url)
        tasks = [asyncio.create_task(client.generate(replace(LONG, request_id=f"r{n}"))) for n in range(130)]
        await until(lambda: arrived == 130)
        assert await client.version() == 0, "nor does its health wait for them"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_port_of_something_else_is_an_engine_error(client_of: Callable[..., HttpEngine]) -> None:
    """Whatever listens at an old address: an exception of the HTTP library would end the worker as a bug of ours."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(EngineUnreachableError, match="could not reach"):
            await client_of(f"http://127.0.0.1:{port}", deadline_seconds=0.1).version()
    with pytest.raises(EngineUnreachableError, match="could not reach"):
        await client_of("no address", deadline_seconds=0.1).version()


@pytest.mark.parametrize("body", [b'{"data": []}', b'{"data": "\xff"}', b"<html>", b""])
async def test_a_server_of_something_else_is_an_engine_error(body: bytes, client_of: Callable[..., HttpEngine]) -> None:
    async def models(_: web.Request) -> web.Response:
        return web.Response(body=body)

    app = web.Application()
    app.router.add_get("/v1/models", models)
    async with serving(app) as url:
        with pytest.raises(EngineError, match="an invalid response"):
            await client_of(url).version()


async def test_port_in_use_is_reported(engine_of: Builder) -> None:
    engine = engine_of(make_model())
    async with serve(engine, token=TOKEN) as url:
        with pytest.raises(SetupError, match="engine_port"):
            async with serve(engine, token=TOKEN, port=int(url.rpartition(":")[2])):
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
        {"finish_reason": "stop", "stop_reason": "never asked for"},
        {"entropies": [1.0]},
        {"entropies": [1.0, -1.0]},
        {"finish_reason": "tired"},
    ],
)
async def test_no_answer_is_believed_unchecked(wrong: dict[str, Any], client_of: Callable[..., HttpEngine]) -> None:
    """A server that answers nonsense stands in for a broken engine: ours cannot be made to."""

    async def completions(_: web.Request) -> web.Response:
        usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
        return web.json_response({"id": "a", "choices": [GOOD_CHOICE | wrong], "usage": usage})

    request = replace(LONG, sampling=Sampling(max_tokens=2))
    async with serving(standing_in(completions)) as url:
        with pytest.raises(EngineError, match="invalid response"):
            await client_of(url).generate(request)


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
