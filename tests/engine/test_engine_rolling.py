"""Several engines take a policy one after another, with requests in flight, and none of these is lost."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_models import Gate, make_model, make_requests, publish
from msgspec.structs import replace
from test_engine_process import commit

from quartet.engine.router import Router
from quartet.engine.service import EngineService
from quartet.engine.torch_engine import TorchEngine
from quartet.ledger import Ledger
from quartet.telemetry.presence import Presence
from quartet.telemetry.record import Recorder
from quartet.types import Sampling
from tests.waiting import until

pytestmark = pytest.mark.slow

Builder = Callable[..., TorchEngine]


def service_of(name: str, engine: TorchEngine, ledger: Ledger) -> EngineService:
    recorder, presence = Recorder(ledger.run_dir, name), Presence(ledger.modules, name)
    return EngineService(engine, ledger, recorder, presence, may_load=lambda: True, is_away=lambda: False)


async def test_engines_load_one_at_a_time_and_go_on_decoding(engine_of: Builder, tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "run")
    ledger.policies.register_initial("unused")
    ledger.policies.expect_engines(["engine", "engine-2"])
    first, second = engine_of(make_model()), engine_of(make_model())
    services = [service_of("engine", first, ledger), service_of("engine-2", second, ledger)]
    for service in services:
        await service.tick()
    router = Router({"engine": first, "engine-2": second})
    requests = [replace(request, sampling=Sampling(max_tokens=180, seed=9)) for request in make_requests(6)]
    tasks = [asyncio.create_task(router.generate(request)) for request in requests]
    await until(lambda: min(first.counters.generated_tokens, second.counters.generated_tokens) > 5)
    commit(ledger, str(publish(make_model(seed=1), tmp_path / "p1")))
    gate = Gate(first, tokens=0)
    await gate.reached()
    loading = asyncio.create_task(services[0].tick())
    await until(lambda: first.queued_commands == 1)  # its weights are proved, the swap waits
    await services[1].tick()
    assert (await second.version(), ledger.policies.latest_is_settled()) == (0, False), "it is not its turn"
    assert (await second.generate(replace(requests[0], request_id="meanwhile"))).versions[0] == 0
    await gate.open()
    await loading
    await services[1].tick()
    assert (await first.version(), await second.version()) == (1, 1)
    assert ledger.policies.latest_is_settled()
    for request, result in zip(requests, await asyncio.gather(*tasks), strict=True):
        assert len(result.token_ids) == request.sampling.max_tokens
        assert result.versions == sorted(result.versions)
    assert {0, 1} in [set(task.result().versions) for task in tasks]
    ledger.close()
