"""What refused weights computed is no old cache, and no token is told before its version is known and proved.

The server here has vLLM's routes and tells whose keys it uses.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from aiohttp import web
from engine_kinds import engine_recipe
from engine_models import MAX_CONTEXT_TOKENS, VOCAB_SIZE, make_model, make_requests, other_canary, publish
from transformers import AutoModelForCausalLM

from quartet.engine.api import make_app
from quartet.engine.base import GenerateRequest
from quartet.engine.http import HttpEngine
from quartet.engine.remote.engine import Limits
from quartet.engine.remote.server import InferenceServer
from quartet.engine.vllm.engine import VllmEngine
from quartet.errors import CheckpointError, EngineError
from quartet.types import FinishReason, Sampling
from tests.rollout.serving import serving
from tests.waiting import until

pytestmark = pytest.mark.slow


class PrefixServer:
    """Samples one and the same token. Loads of weights are counted from 1."""

    def __init__(self) -> None:
        self.loads, self.version, self.model = 0, "", make_model()
        self.resumed_version = ""
        """Version of which the engine knows that the server has it: it sends `/resume` after that."""
        self.prefixes: dict[tuple[str, tuple[int, ...]], int] = {}
        """Salt and prompt -> the load that computed its keys and values."""
        self.used: list[int] = []
        """For every request, the load whose keys and values it used."""
        self.cleared: list[bool] = []
        self.may_score = asyncio.Event()
        self.may_score.set()
        self.end: dict[str, object] = {}
        """Fields of the last event of a response that stand instead of the true ones."""
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.events = 0
        """Events that were sent."""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        app = web.Application()
        routes: dict[str, Callable[[web.Request, Any], Awaitable[object]]] = {
            "/pause": self.pause,
            "/collective_rpc": self.load,
            "/update_weight_version": self.rename,
            "/resume": self.resume,
            "/v1/completions": self.score,
        }
        for path, answer in routes.items():
            app.router.add_post(path, _json_route(answer))
        app.router.add_post("/inference/v1/generate", self.generate)
        async with serving(app) as url:
            yield url

    async def pause(self, http: web.Request, _: Any) -> object:
        self.cleared.append(http.query["clear_cache"] == "true")
        if self.cleared[-1]:
            self.prefixes.clear()
        return {}

    async def load(self, _: web.Request, body: Any) -> object:
        self.model = AutoModelForCausalLM.from_pretrained(body["args"][0])
        self.loads += 1
        return {}

    async def rename(self, _: web.Request, body: Any) -> object:
        self.version = body["new_version"]
        return {}

    async def resume(self, _: web.Request, __: Any) -> object:
        self.resumed_version = self.version
        return {}

    @torch.inference_mode()
    async def score(self, _: web.Request, body: Any) -> object:
        await self.may_score.wait()
        prompt = torch.tensor(body["prompt"])
        logprobs = self.model(input_ids=prompt[None], use_cache=False).logits[0].log_softmax(-1)
        told = logprobs[:-1].gather(-1, prompt[1:, None])[:, 0].tolist()
        return {"choices": [{"logprobs": {"token_logprobs": [None, *told, -1.0]}}]}

    async def generate(self, http: web.Request) -> web.StreamResponse:
        body = await http.json()
        self.used.append(self.prefixes.setdefault((body["cache_salt"], tuple(body["token_ids"])), self.loads))
        response, count = web.StreamResponse(), body["sampling_params"]["max_tokens"]
        await response.prepare(http)
        spans: list[dict[str, object]] = []
        for index in range(count):
            spans.append({"version": self.version, "start": index, "end": index + 1})
            end = {"finish_reason": "length", "weight_versions": spans} if index == count - 1 else {}
            choice = {"token_ids": [7], "logprobs": {"content": [{"logprob": -1.0}]}, **end} | (end and self.end)
            await response.write(b"data: " + msgspec.json.encode({"choices": [choice]}) + b"\n\n")
            self.events += 1
            await self.may_go_on.wait()
        await response.write(b"data: [DONE]\n\n")
        self.events += 1
        return response


def _json_route(
    answer: Callable[[web.Request, Any], Awaitable[object]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handler(http: web.Request) -> web.Response:
        return web.json_response(await answer(http, await http.json() if http.can_read_body else None))

    return handler


@asynccontextmanager
async def first_policy(tmp_path: Path) -> AsyncIterator[tuple[PrefixServer, VllmEngine, GenerateRequest]]:
    """The server, an engine over it that keeps its KV cache across updates, and a request for one token."""
    server = PrefixServer()
    async with server.serve() as url:
        recipe = engine_recipe("vllm", url=url, kv_cache_on_weight_update="keep")
        engine = VllmEngine(InferenceServer(url), None, Limits(MAX_CONTEXT_TOKENS, VOCAB_SIZE), recipe)
        await engine.load_policy(publish(make_model(), tmp_path / "p0"), 0)
        yield server, engine, msgspec.structs.replace(make_requests(1)[0], sampling=Sampling(max_tokens=1))
        await engine.close()


async def test_cache_entries_of_refused_weights_are_cleared(tmp_path: Path) -> None:
    async with first_policy(tmp_path) as (server, engine, request):
        folder = publish(make_model(seed=1), tmp_path / "p1")
        other_canary(folder)
        server.may_score.clear()
        load = asyncio.create_task(engine.load_policy(folder, 1))
        await until(lambda: server.resumed_version == "1")
        early = asyncio.create_task(engine.generate(request))
        await until(lambda: server.used == [2])
        server.may_score.set()
        with pytest.raises(CheckpointError, match="failed verification"):
            await load
        with pytest.raises(EngineError, match="failed verification"):
            await early
        assert server.cleared == [False, False, True], "requests in flight lose what the refused weights computed"
        result = await engine.generate(request)
        assert result.versions == [0] and not result.cache_versions
        assert server.used[-1] == server.loads == 3


async def test_request_during_the_proof_of_new_weights_uses_no_older_cache(tmp_path: Path) -> None:
    async with first_policy(tmp_path) as (server, engine, request):
        await engine.generate(request)
        folder = publish(make_model(seed=1), tmp_path / "p1")
        server.may_score.clear()
        load = asyncio.create_task(engine.load_policy(folder, 1))
        await until(lambda: server.resumed_version == "1")
        early = asyncio.create_task(engine.generate(msgspec.structs.replace(request, request_id="early")))
        await until(lambda: len(server.used) == 2)
        server.may_score.set()
        await load
        result = await early
        assert result.versions == [1] and not result.cache_versions
        assert server.used == [1, 2]


async def test_tokens_are_told_as_they_come_up_to_the_change_of_weights(tmp_path: Path) -> None:
    """Only the end says which of the tokens after it are of which version."""
    async with first_policy(tmp_path) as (server, engine, request):
        server.may_go_on.clear()
        longer = msgspec.structs.replace(request, sampling=Sampling(max_tokens=3))
        generating = asyncio.create_task(engine.generate(longer))
        await until(lambda: bool(engine.so_far(request.request_id).token_ids))
        assert engine.so_far(request.request_id).versions == [0]
        await engine.load_policy(publish(make_model(seed=1), tmp_path / "p1"), 1)
        server.may_go_on.set()
        result = await generating
        assert result.versions == [0, 1, 1]
        assert not engine.so_far(request.request_id).token_ids


async def test_a_response_that_ends_while_weights_are_proved_is_whole(tmp_path: Path) -> None:
    """Some of it was told before, over HTTP; meanwhile nothing is taken back."""
    async with first_policy(tmp_path) as (server, engine, request), serving(make_app(engine)) as url:
        client = HttpEngine(lambda: url, part_seconds=0.01)
        server.may_go_on.clear()
        longer = msgspec.structs.replace(request, sampling=Sampling(max_tokens=4))
        generating = asyncio.create_task(client.generate(longer))
        await until(lambda: bool(engine.so_far(request.request_id).token_ids))
        server.may_score.clear()
        load = asyncio.create_task(engine.load_policy(publish(make_model(seed=1), tmp_path / "p1"), 1))
        await until(lambda: server.resumed_version == "1")
        server.may_go_on.set()
        await until(lambda: server.events == 5)
        await asyncio.sleep(0.1)  # so that the engine has read all events, and the client has polled many times
        server.may_score.set()
        await load
        result = await generating
        await client.close()
        assert (result.versions, result.finish_reason) == ([0, 1, 1, 1], FinishReason.LENGTH)


@pytest.mark.parametrize(
    ("end", "problem"),
    [
        ({"weight_versions": [{"version": "0", "start": 1, "end": 2}]}, "gap"),
        ({"weight_versions": None}, "no weight versions"),
        ({"finish_reason": None}, "no finish reason"),
        ({"logprobs": {"content": []}}, "0 log-probs for 1 tokens"),
    ],
)
async def test_nothing_is_kept_of_an_answer_that_turns_out_wrong(
    end: dict[str, object], problem: str, tmp_path: Path
) -> None:
    async with first_policy(tmp_path) as (server, engine, request), serving(make_app(engine)) as url:
        client = HttpEngine(lambda: url, part_seconds=0.01)
        server.may_go_on.clear()
        server.end = end
        longer = msgspec.structs.replace(request, sampling=Sampling(max_tokens=4))
        generating = asyncio.create_task(client.generate(longer))
        await until(lambda: bool(engine.so_far(request.request_id).token_ids))
        await asyncio.sleep(0.1)  # so that it is told
        server.may_go_on.set()
        with pytest.raises(EngineError, match=problem):
            await generating
        await client.close()


async def test_tokens_of_unproved_weights_are_not_reported(tmp_path: Path) -> None:
    async with first_policy(tmp_path) as (server, engine, request):
        server.may_score.clear()
        load = asyncio.create_task(engine.load_policy(publish(make_model(seed=1), tmp_path / "p1"), 1))
        await until(lambda: server.resumed_version == "1")
        server.may_go_on.clear()
        early = asyncio.create_task(engine.generate(request))
        await until(lambda: server.events == 1)
        await asyncio.sleep(0.1)  # so that the engine has read it
        assert not engine.so_far(request.request_id).token_ids
        server.may_score.set()
        await load
        assert engine.so_far(request.request_id).versions == [1]
        server.may_go_on.set()
        assert (await early).versions == [1]
