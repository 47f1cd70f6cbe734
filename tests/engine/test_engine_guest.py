"""An engine beside the trainer: it hands its requests over while the trainer computes, and serves again afterwards."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from engine_models import make_model, make_requests, until
from msgspec.structs import replace

from quartet.engine.guest import Guest
from quartet.engine.http import HttpEngine
from quartet.engine.router import Router
from quartet.engine.server import serve
from quartet.engine.torch_engine import TorchEngine
from quartet.files.computing import computing, is_computing
from quartet.types import Sampling
from tests.rollout.serving import TOKEN

Builder = Callable[..., TorchEngine]


def test_several_trainers_may_compute_at_once(tmp_path: Path) -> None:
    assert not is_computing(tmp_path)
    with computing(tmp_path):
        with computing(tmp_path):
            assert is_computing(tmp_path)
        assert is_computing(tmp_path)
    assert not is_computing(tmp_path)


@pytest.mark.slow
async def test_requests_go_on_elsewhere_while_the_trainer_computes_and_return(
    engine_of: Builder, tmp_path: Path
) -> None:
    requests = [replace(request, sampling=Sampling(max_tokens=150, seed=3)) for request in make_requests(6)]
    expected = [await engine_of(make_model()).generate(request) for request in requests]
    hosted, other = engine_of(make_model()), engine_of(make_model())
    guest = Guest(hosted, tmp_path)
    async with guest.watching(), serve(guest, token=TOKEN) as one, serve(other, token=TOKEN) as two:
        clients = {
            name: HttpEngine(lambda url=url: url, token=TOKEN, deadline_seconds=0.1)
            for name, url in (("guest", one), ("other", two))
        }
        router = Router(clients, probe_seconds=0.02)
        tasks = [asyncio.create_task(router.generate(request)) for request in requests]
        await until(lambda: hosted.active_requests > 0 and hosted.counters.generated_tokens > 10)
        with ExitStack() as step:
            step.enter_context(computing(tmp_path))
            await until(lambda: hosted.active_requests == 0)
            results = await asyncio.gather(*tasks)
            assert [result.token_ids for result in results] == [result.token_ids for result in expected]
            total = hosted.counters.generated_tokens + other.counters.generated_tokens
            assert total == sum(len(result) for result in expected), "nothing was sampled twice"
            sampled = hosted.counters.generated_tokens
            again = [replace(request, request_id=f"again {request.request_id}") for request in requests]
            await asyncio.gather(*(router.generate(request) for request in again))
            assert hosted.counters.generated_tokens == sampled and router.up == ["other"]
        await until(lambda: "guest" in router.up)
        later = [replace(request, request_id=f"later {request.request_id}") for request in requests]
        await asyncio.gather(*(router.generate(request) for request in later))
        assert hosted.counters.generated_tokens > sampled
        await router.close()
