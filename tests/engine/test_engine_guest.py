"""An engine beside the trainer: it hands its requests over while the trainer computes, and serves again afterwards."""

import asyncio
import fcntl
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest
from engine_models import Gate, is_healthy, make_model, make_requests, until_healthy
from msgspec.structs import replace

from quartet.engine.guest import Guest
from quartet.engine.http import HttpEngine
from quartet.engine.router import Router
from quartet.engine.server import serve
from quartet.engine.service import EngineService
from quartet.engine.torch_engine import TorchEngine
from quartet.errors import EngineError
from quartet.files.computing import computing, is_computing
from quartet.ledger import Ledger
from quartet.telemetry.presence import Presence
from quartet.telemetry.record import Recorder
from quartet.types import Sampling
from tests.rollout.serving import TOKEN
from tests.waiting import until

Builder = Callable[..., TorchEngine]


def test_several_trainers_may_compute_at_once(tmp_path: Path) -> None:
    def found() -> list[bool]:
        return [is_computing(tmp_path, name) for name in ("trainer-even", "trainer-odd")]

    assert found() == [False, False]
    with computing(tmp_path, "trainer-even"):
        with computing(tmp_path, "trainer-odd"):
            assert found() == [True, True]
        assert found() == [True, False]
    assert found() == [False, False]


def test_an_engine_that_tests_the_lock_is_not_taken_for_the_trainer(tmp_path: Path) -> None:
    assert not is_computing(tmp_path, "trainer")
    (lock,) = tmp_path.glob("**/*.lock")
    with lock.open() as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert not is_computing(tmp_path, "trainer")


def test_the_lock_is_possible_on_nfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS turns `flock` into locks of POSIX, as `lockf` asks for them."""
    monkeypatch.setattr(fcntl, "flock", fcntl.lockf)
    with computing(tmp_path, "trainer"):
        pass
    assert not is_computing(tmp_path, "trainer")


async def test_an_abort_that_fails_is_tried_again(
    engine_of: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted, failures = engine_of(make_model()), [EngineError("the server does not answer")]
    abort = hosted.abort

    async def failing_once(request_id: str) -> None:
        if failures:
            raise failures.pop()
        await abort(request_id)

    monkeypatch.setattr(hosted, "abort", failing_once)
    guest = Guest(hosted, partial(is_computing, tmp_path, "trainer"))
    gate = Gate(hosted, tokens=10)
    async with guest.watching():
        (request,) = make_requests(1)
        task = asyncio.create_task(guest.generate(replace(request, sampling=Sampling(max_tokens=150, seed=3))))
        await gate.reached()
        with computing(tmp_path, "trainer"):
            await gate.open(commands=1)
            assert 10 <= len((await task).token_ids) < 150 and not failures
            assert not await is_healthy(guest)
        await until_healthy(guest)


async def test_a_guest_says_that_it_waits_for_the_trainer(engine_of: Builder, tmp_path: Path) -> None:
    with closing(Ledger.create(tmp_path)) as ledger, Recorder(tmp_path, "engine") as recorder:
        ledger.policies.register_initial("unused")
        presence = Presence(ledger.modules, "engine", interval_seconds=0.0)
        computes = partial(is_computing, tmp_path, "trainer")
        service = EngineService(
            engine_of(make_model()), ledger, recorder, presence, may_load=lambda: not computes(), is_away=computes
        )

        async def waits_for() -> str:
            await service.tick()
            (row,) = ledger.modules.all()
            return row.waiting_for

        assert await waits_for() == "requests"
        with computing(tmp_path, "trainer"):
            assert await waits_for() == "the trainer"
        assert await waits_for() == "requests"


@pytest.mark.slow
async def test_requests_go_on_elsewhere_while_the_trainer_computes_and_return(
    engine_of: Builder, tmp_path: Path
) -> None:
    requests = [replace(request, sampling=Sampling(max_tokens=150, seed=3)) for request in make_requests(6)]
    expected = [await engine_of(make_model()).generate(request) for request in requests]
    hosted, other = engine_of(make_model()), engine_of(make_model())
    guest = Guest(hosted, partial(is_computing, tmp_path, "trainer"))
    async with guest.watching(), serve(guest, token=TOKEN) as one, serve(other, token=TOKEN) as two:
        clients = {
            name: HttpEngine(lambda url=url: url, token=TOKEN, deadline_seconds=0.1)
            for name, url in (("guest", one), ("other", two))
        }
        router = Router(clients, probe_seconds=0.02)
        tasks = [asyncio.create_task(router.generate(request)) for request in requests]
        await until(lambda: hosted.active_requests > 0 and hosted.counters.generated_tokens > 10)
        with ExitStack() as step:
            step.enter_context(computing(tmp_path, "trainer"))
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
