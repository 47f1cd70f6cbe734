"""A server by URL is used for what it can do, and refused in words for what it cannot."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from engine_kinds import engine_recipe
from engine_models import make_model, make_requests, publish
from openai_server import OpenAIServer
from test_engine_process import commit

from quartet.access.token import run_token
from quartet.engine.http import HttpEngine
from quartet.engine.openai.engine import OpenAIEngine, open_openai
from quartet.engine.remote import server
from quartet.engine.server import run_engine, serve
from quartet.engine.torch_engine import TorchEngine
from quartet.engine.vllm.engine import open_vllm
from quartet.errors import CheckpointError, ConfigError, EngineError, RefusedRequestError, SetupError
from quartet.ledger import Ledger
from quartet.recipe.file import parse_recipe
from quartet.rollout.client import ModelClient
from quartet.types import FinishReason, Policy, Sampling
from tests.rollout.serving import TOKEN
from tests.waiting import until

pytestmark = pytest.mark.slow

Builder = Callable[..., TorchEngine]
Connect = Callable[..., Any]


@pytest.fixture
async def connect(engine_of: Builder, tmp_path: Path) -> AsyncIterator[Connect]:
    """Opens the engine on a server that has, or lacks, some abilities."""
    async with AsyncExitStack() as stack:

        async def build(
            *,
            trains: bool = True,
            reload: str = "update_weights_from_disk",
            temperature: float = 1.0,
            **abilities: bool,
        ) -> OpenAIEngine:
            model = make_model()
            server = OpenAIServer(engine_of(model), model, **abilities)
            recipe = engine_recipe("openai", url=await stack.enter_async_context(server.serve()), reload=reload)
            recipe = recipe.model_copy(
                update={"rollout": recipe.rollout.model_copy(update={"temperature": temperature})}
            )
            policy = Policy(version=3, path=str(publish(make_model(), tmp_path / "policy")), train_step=0)
            engine = await open_openai(recipe, policy, trains=trains)
            stack.push_async_callback(engine.close)
            return engine

        yield build


@pytest.mark.parametrize(
    ("lacks", "says"),
    [
        ({"tells_ids": False}, "does not return token ids"),
        ({"tells_logprobs": False}, "does not return the log-probs"),
        ({"echoes": False}, "does not echo"),
        ({"strict": True, "tells_ids": False}, "does not return token ids"),
        ({"reload": "none"}, "takes no new weights"),
    ],
)
async def test_a_server_that_cannot_train_says_why_and_still_evaluates(
    lacks: dict[str, Any], says: str, connect: Connect
) -> None:
    with pytest.raises(SetupError, match=says):
        await connect(**lacks)
    engine = await connect(trains=False, **lacks)
    request = msgspec.structs.replace(make_requests(1)[0], sampling=Sampling(temperature=0.0, max_tokens=8))
    result = await engine.generate(request)
    full = await (await connect()).generate(request)
    assert result.token_ids == full.token_ids
    assert result.finish_reason is FinishReason.LENGTH
    assert len(result.logprobs) == len(result.versions)
    assert bool(result.logprobs) == ("echoes" in lacks or "reload" in lacks)


async def test_a_text_of_more_tokens_than_allowed_is_cut_and_did_not_stop(connect: Connect) -> None:
    sampling = Sampling(temperature=0.0, max_tokens=4)
    request = msgspec.structs.replace(make_requests(1)[0], sampling=sampling)
    first, second, *_ = (await (await connect()).generate(request)).token_ids
    engine = await connect(trains=False, tells_ids=False, repeats=True)
    for max_tokens, ids in {3: [first, first, second], 2: [first, first]}.items():
        sampling = Sampling(temperature=0.0, max_tokens=max_tokens)
        result = await engine.generate(msgspec.structs.replace(request, sampling=sampling, stop_token_ids=[second]))
        assert result.token_ids == ids
        assert result.finish_reason is (FinishReason.STOP if max_tokens == 3 else FinishReason.LENGTH)


class Words:
    """What the model client needs of a renderer."""

    stop_token_ids: list[int] = []  # noqa: RUF012


async def test_server_without_logprobs_is_accepted_for_evaluation_only(connect: Connect) -> None:
    """Over Quartet's own API too, as a worker meets it."""
    engine = await connect(trains=False, tells_ids=False)
    async with serve(engine, token=TOKEN) as url:
        http = HttpEngine(lambda: url, token=TOKEN)
        words: Any = Words()
        sampling = Sampling(seed=1)
        evaluates = ModelClient(http, words, sampling=sampling, conversation="a", for_training=False)
        call = await evaluates.generate([5, 6], 4)
        assert len(call.response_ids) == 4 and not call.response.has_logprobs
        with pytest.raises(EngineError, match="no log-probs"):
            await ModelClient(http, words, sampling=sampling, conversation="b").generate([5, 6], 4)
        await http.close()


async def test_unscaled_logprobs_are_found_out(connect: Connect) -> None:
    with pytest.raises(SetupError, match="processed_logprobs"):
        await connect(scales=False, temperature=0.7)
    assert await connect(scales=False, temperature=1.0)
    assert await connect(scales=True, temperature=0.7)


async def test_a_server_that_says_it_has_new_weights_and_has_not_is_found_out(connect: Connect, tmp_path: Path) -> None:
    engine = await connect(obeys=False)
    with pytest.raises(CheckpointError, match="canary"):
        await engine.load_policy(publish(make_model(seed=1), tmp_path / "next"), 4)
    assert await engine.version() == 3
    assert set((await engine.generate(make_requests(1)[0])).versions) == {3}


async def test_other_weights_than_the_policy_s_are_found_out_in_evaluation_too(
    engine_of: Builder, tmp_path: Path
) -> None:
    model = make_model(seed=5)
    async with OpenAIServer(engine_of(model), model).serve() as url:
        policy = Policy(version=0, path=str(publish(make_model(), tmp_path / "policy")), train_step=0)
        with pytest.raises(CheckpointError, match="canary"):
            await open_openai(engine_recipe("openai", url=url), policy, trains=False)


async def test_an_interrupted_request_goes_on_with_what_it_has(connect: Connect, tmp_path: Path) -> None:
    """Nothing that came before the swap is sampled again."""
    engine = await connect()
    request = msgspec.structs.replace(make_requests(1)[0], sampling=Sampling(temperature=0.0, max_tokens=150))
    whole = await engine.generate(request)
    folder = publish(make_model(seed=1), tmp_path / "next")
    task = asyncio.create_task(engine.generate(request))
    await until(lambda: len(engine.so_far(request.request_id).token_ids) >= 5)
    await engine.load_policy(folder, 4)
    result = await task
    before = result.versions.index(4)
    assert before >= 5
    assert result.token_ids[:before] == whole.token_ids[:before]
    assert len(result.token_ids) == 150


async def test_an_abort_is_not_lost_while_weights_are_exchanged(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchanges, go_on, update = asyncio.Event(), asyncio.Event(), OpenAIServer.update_weights

    async def held(server: OpenAIServer, http: web.Request) -> web.Response:
        exchanges.set()
        await go_on.wait()
        return await update(server, http)

    monkeypatch.setattr(OpenAIServer, "update_weights", held)
    go_on.set()
    engine = await connect()
    exchanges.clear()
    go_on.clear()
    request = msgspec.structs.replace(make_requests(1)[0], sampling=Sampling(max_tokens=150))
    generated = engine.counters.generated_tokens
    load = asyncio.create_task(engine.load_policy(publish(make_model(seed=1), tmp_path / "next"), 4))
    await exchanges.wait()
    task = asyncio.create_task(engine.generate(request))
    await until(lambda: engine.active_requests == 1)
    await engine.abort(request.request_id)
    go_on.set()
    await load
    result = await task
    assert (result.finish_reason, result.token_ids) == (FinishReason.ABORT, [])
    assert engine.counters.generated_tokens == generated


async def test_a_server_without_vllm_s_routes_is_told_how_to_start(engine_of: Builder, tmp_path: Path) -> None:
    model = make_model()
    async with OpenAIServer(engine_of(model), model).serve() as url:
        policy = Policy(version=0, path=str(publish(model, tmp_path / "policy")), train_step=0)
        with pytest.raises(SetupError, match="VLLM_SERVER_DEV_MODE=1 and --enable-scale-out"):
            await open_vllm(engine_recipe("vllm", url=url), policy, tmp_path / "log")


async def test_a_wrong_address_or_model_is_told(engine_of: Builder, tmp_path: Path) -> None:
    model = make_model()
    policy = Policy(version=0, path=str(publish(model, tmp_path / "policy")), train_step=0)
    nowhere = engine_recipe("openai", url="http://127.0.0.1:9")
    for trains in (True, False):
        with pytest.raises(SetupError, match=r"engine\.url: .* does not answer"):
            await open_openai(nowhere, policy, trains=trains)
    with pytest.raises(SetupError, match=r"engine\.url: .* does not answer"):
        await open_vllm(engine_recipe("vllm", url="http://127.0.0.1:9"), policy, tmp_path / "log")
    later = msgspec.structs.replace(policy, version=1)
    with pytest.raises(EngineError, match="does not answer"):  # it may come back
        await open_openai(nowhere, later, trains=True)
    async with OpenAIServer(engine_of(model), model).serve() as url:
        with pytest.raises(SetupError, match="serves no model 'other', only policy"):
            await open_openai(engine_recipe("openai", url=url, model="other"), policy, trains=True)
    with pytest.raises(SetupError, match="NOT_SET_ANYWHERE"):
        settings = {"url": "http://127.0.0.1:9", "api_key_variable": "NOT_SET_ANYWHERE"}
        await open_openai(engine_recipe("openai", **settings), policy, trains=True)


@pytest.mark.parametrize(
    ("engine", "says"),
    [
        ({"name": "vllm", "url": "localhost:8000"}, "http://HOST:PORT"),
        ({"name": "openai", "url": "http://localhost:8000/v1"}, "leave out /v1"),
        (
            {"name": "torch", "url": "http://localhost:8000"},
            "is a setting of the engine 'openai' or 'vllm', and 'torch'",
        ),
        ({"name": "vllm", "url": "http://localhost:8000", "replicas": 2}, "a URL names one server"),
        ({"kind": "vllm"}, "unknown key 'engine.kind': it is now 'engine.name'"),
    ],
)
def test_an_address_that_would_do_nothing_is_refused(engine: dict[str, object], says: str) -> None:
    data = {"name": "engine", "model": {"path": "unused"}, "env": {"name": "bandit"}, "engine": engine}
    with pytest.raises(ConfigError, match=says):
        parse_recipe(data, "test")


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"engine\.url"):
        engine_recipe("openai")
    data = {"name": "engine", "model": {"path": "unused"}, "env": {"name": "bandit"}, "engine": {"name": "vllm"}}
    with pytest.raises(ConfigError, match="stop_strings"):
        parse_recipe(data | {"rollout": {"stop_strings": ["."]}}, "test")
    with pytest.raises(ConfigError, match="runs the engine 'torch' only"):
        parse_recipe(data | {"runtime": {"kind": "synchronous"}}, "test")


async def test_sampling_that_openai_s_own_api_does_not_know_is_passed_on_or_refused(connect: Connect) -> None:
    request = make_requests(1, top_k=1)[0]
    greedy = msgspec.structs.replace(request, sampling=msgspec.structs.replace(request.sampling, temperature=0.0))
    engine = await connect()
    assert (await engine.generate(request)).token_ids == (await engine.generate(greedy)).token_ids
    plain = await connect(trains=False, strict=True, tells_ids=False)
    with pytest.raises(RefusedRequestError, match="top_k"):
        await plain.generate(request)


async def test_the_engine_process_follows_the_ledger_on_a_server(engine_of: Builder, tmp_path: Path) -> None:
    model = make_model(seed=0)
    ledger = Ledger.create(tmp_path)
    ledger.policies.register_initial(str(publish(make_model(seed=0), tmp_path / "p0")))
    async with OpenAIServer(engine_of(model), model).serve() as url:
        recipe = engine_recipe("openai", url=url, reload="update_weights_from_disk")
        stop = asyncio.Event()
        process = asyncio.create_task(run_engine(recipe, tmp_path, stop))
        engine = HttpEngine(lambda: ledger.modules.url("engine"), token=run_token(ledger.run_dir))
        assert set((await engine.generate(make_requests(1)[0])).versions) == {0}
        commit(ledger, str(publish(make_model(seed=1), tmp_path / "p1")))
        async with asyncio.timeout(30):
            while await engine.version() != 1:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert set((await engine.generate(make_requests(1)[0])).versions) == {1}
        stop.set()
        await process
        await engine.close()
    ledger.close()


async def test_a_server_that_takes_connections_and_says_nothing_is_not_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SMALL", aiohttp.ClientTimeout(total=0.2))
    silent = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    inference = server.InferenceServer(f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}")
    try:
        assert not await inference.is_up()
        with pytest.raises(EngineError, match="does not answer"):
            await inference.card()
    finally:
        await inference.close()
        silent.close()


async def test_events_of_any_length_are_read_whole() -> None:
    """A server with pictures repeats the prompt's ids in an event: megabytes in one line."""
    events = [b"a" * 3_000_000, b"", b"short", b"b" * 700_000]

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for data in [*events, b"[DONE]"]:
            await response.write(b"data: " + data + b"\n\n")
        return response

    app = web.Application()
    app.router.add_post("/stream", stream)
    async with TestServer(app) as streaming:
        inference = server.InferenceServer(str(streaming.make_url("/")))
        assert [data async for data in inference.events("/stream", {})] == [data for data in events if data]
        await inference.close()
