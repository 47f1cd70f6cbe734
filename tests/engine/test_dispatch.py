"""Dispatch of requests by the memory and the policy that real engines report."""

import asyncio
from collections.abc import Callable

import pytest
from engine_models import Gate, make_model, make_requests
from msgspec.structs import replace

from quartet.config import Dispatch as DispatchChoice
from quartet.engine.base import EngineState, GenerateRequest
from quartet.engine.dispatch.base import Candidate, Dispatch
from quartet.engine.http import HttpEngine
from quartet.engine.router import Router
from quartet.engine.server import serve
from quartet.engine.torch_engine import TorchEngine
from quartet.engine.vllm.wire import cache_use
from quartet.registry import build
from quartet.types import Sampling
from tests.rollout.serving import TOKEN
from tests.waiting import until

Builder = Callable[..., TorchEngine]


def named(name: str, count: int, max_tokens: int) -> list[GenerateRequest]:
    """Requests of 40 prompt tokens."""
    return [
        replace(
            request,
            request_id=f"{name}{number}",
            prompt_ids=request.prompt_ids[:40],
            sampling=Sampling(max_tokens=max_tokens, seed=number),
        )
        for number, request in enumerate(make_requests(count))
    ]


@pytest.fixture
def headroom() -> Dispatch:
    return build(DispatchChoice(name="headroom"))


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (Candidate(500, EngineState(3, 0.5), 0), Candidate(10, EngineState(3, 0.95), 0)),
        (Candidate(500, EngineState(3, 0.5), 0), Candidate(10, EngineState(1, 0.5), 2)),
        (Candidate(500, EngineState(1, 0.5), 2), Candidate(10, EngineState(3, 0.95), 0)),
        (Candidate(10, EngineState(2, 0.5), 1), Candidate(500, EngineState(3, 0.5), 0)),
        (Candidate(10, None, 0), Candidate(500, EngineState(3, None), 0)),
    ],
    ids=["memory", "policy", "memory before policy", "one version behind is usual", "unknown states"],
)
def test_memory_comes_before_policy_and_policy_before_work(
    better: Candidate, worse: Candidate, headroom: Dispatch
) -> None:
    assert headroom.rank(better) < headroom.rank(worse)


def test_the_use_of_vllm_s_cache_is_the_largest_of_its_engines() -> None:
    page = '# TYPE x gauge\nvllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25\n'
    assert cache_use(page + 'vllm:kv_cache_usage_perc{engine="1",model_name="m"} 5e-1\nother 0.9\n') == 0.5
    assert cache_use("vllm:num_requests_waiting 3.0\n") is None


@pytest.mark.slow
async def test_requests_avoid_an_engine_that_other_workers_have_filled(engine_of: Builder) -> None:
    """Of 1 MiB, eight requests take all: a row of 256 tokens takes 128 KiB."""
    full, roomy = engine_of(make_model(), max_slots=16, kv_cache_megabytes=1), engine_of(make_model())
    router = Router({"full": full, "roomy": roomy})
    gate = Gate(full, tokens=0)
    others = [asyncio.create_task(full.generate(request)) for request in named("other", 8, 150)]
    await gate.reached()
    assert await router.version() == 0  # they report their states
    mine = [asyncio.create_task(router.generate(request)) for request in named("mine", 4, 60)]
    await until(lambda: roomy.counters.requests == len(mine))
    only = Router({"full": full})
    await only.version()
    assert router.has_room and not only.has_room
    await gate.open()
    await asyncio.gather(*others, *mine)
    await only.version()
    assert only.has_room and full.counters.put_back == 0


@pytest.mark.slow
async def test_requests_avoid_an_engine_that_stays_at_an_old_policy(engine_of: Builder) -> None:
    stuck, recent = engine_of(make_model(), version=3), engine_of(make_model(), version=5)
    async with serve(stuck, token=TOKEN) as one, serve(recent, token=TOKEN) as two:
        clients = {url: HttpEngine(lambda url=url: url, token=TOKEN) for url in (one, two)}
        router = Router(clients)
        assert await router.version() == 3
        results = await asyncio.gather(*(router.generate(request) for request in named("mine", 4, 20)))
        assert {version for result in results for version in result.versions} == {5}
        await router.close()
    least_work = Router({"stuck": stuck, "recent": recent}, dispatch=build(DispatchChoice(name="least_work")))
    await least_work.version()
    results = await asyncio.gather(*(least_work.generate(request) for request in named("next", 4, 20)))
    assert {version for result in results for version in result.versions} == {3, 5}
    await least_work.close()
