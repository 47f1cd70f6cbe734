"""The router over real engines: what one of them had begun, another one ends, with the same tokens."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import torch
from engine_models import Gate, make_model, make_requests
from msgspec.structs import replace

from quartet.engine.api import make_app
from quartet.engine.base import EngineState, GenerateRequest, GenerateResult
from quartet.engine.forward import Span
from quartet.engine.http import HttpEngine
from quartet.engine.router import Router
from quartet.engine.server import serve
from quartet.engine.torch_engine import TorchEngine
from quartet.errors import EngineError, RefusedRequestError
from quartet.free_port import free_port
from quartet.policy.canary import fixed_sequence, write_canary
from quartet.types import FinishReason, Sampling
from tests.rollout.serving import TOKEN, serving
from tests.waiting import until

pytestmark = pytest.mark.slow

Builder = Callable[..., TorchEngine]


def long_requests(count: int, max_tokens: int = 150) -> list[GenerateRequest]:
    sampled = [replace(request, prompt_ids=request.prompt_ids[:40]) for request in make_requests(count)]
    return [replace(r, sampling=Sampling(max_tokens=max_tokens, seed=r.sampling.seed)) for r in sampled]


async def ask(router: Router, requests: list[GenerateRequest]) -> list[asyncio.Task[GenerateResult]]:
    tasks = [asyncio.create_task(router.generate(request)) for request in requests]
    await asyncio.sleep(0)
    return tasks


def same(results: list[GenerateResult], expected: list[GenerateResult]) -> None:
    for result, whole in zip(results, expected, strict=True):
        assert result.token_ids == whole.token_ids
        assert result.logprobs == pytest.approx(whole.logprobs, abs=1e-4)
        assert result.finish_reason == whole.finish_reason


async def test_the_least_work_comes_first(engine_of: Builder) -> None:
    first, second = engine_of(make_model()), engine_of(make_model())
    router = Router({"a": first, "b": second})
    requests = make_requests(8)
    await asyncio.gather(*await ask(router, requests))
    shares = [engine.counters.requests for engine in (first, second)]
    assert sum(shares) == 8 and min(shares) >= 2
    assert await router.version() == 0


async def test_a_conversation_stays_where_its_cache_is_unless_that_costs_more_than_its_prompt(
    engine_of: Builder,
) -> None:
    first, second = engine_of(make_model()), engine_of(make_model())
    router = Router({"a": first, "b": second})
    (request,) = long_requests(1, max_tokens=5)
    request = replace(request, conversation="talk")
    for turn in range(3):
        await router.generate(replace(request, request_id=f"turn{turn}"))
    assert (first.counters.requests, second.counters.requests) == (3, 0)
    busy = await ask(router, [replace(long_requests(1, max_tokens=200)[0], request_id="busy", conversation="talk")])
    await router.generate(replace(request, request_id="turn3"))
    assert second.counters.requests == 1, "200 tokens of work are more than a prompt of 40"
    await asyncio.gather(*busy)


async def test_an_engine_that_dies_loses_no_request(engine_of: Builder) -> None:
    requests = long_requests(6)
    expected = [await engine_of(make_model()).generate(request) for request in requests]
    first, second = engine_of(make_model()), engine_of(make_model())
    router = Router({"a": first, "b": second})
    gate = Gate(first, tokens=20)
    tasks = await ask(router, requests)
    await gate.reached()
    closing = asyncio.create_task(first.close())
    await gate.open(commands=1)
    await closing
    same(await asyncio.gather(*tasks), expected)
    assert second.counters.requests == len(requests)
    await router.generate(replace(requests[0], request_id="later"))
    assert await router.version() == 0


@asynccontextmanager
async def served(engine: TorchEngine, port: int = 0) -> AsyncIterator[HttpEngine]:
    """A client of the engine; whoever leaves the block ends its server, as the engine's process does when told to."""
    async with serve(engine, token=TOKEN, port=port) as url:
        yield HttpEngine(lambda: url, token=TOKEN, deadline_seconds=0.2)


async def test_an_engine_that_ends_hands_its_requests_over_with_the_tokens_they_have(engine_of: Builder) -> None:
    requests = long_requests(6)
    expected = [await engine_of(make_model()).generate(request) for request in requests]
    first, second, port = engine_of(make_model()), engine_of(make_model()), free_port()
    async with served(second) as stays:
        async with served(first, port) as leaves:
            router = Router({"a": leaves, "b": stays}, probe_seconds=0.05)
            gate = Gate(first, tokens=20)
            tasks = await ask(router, requests)
            await gate.reached()
            opening = asyncio.create_task(gate.open(commands=1))
        await opening
        assert first.active_requests == 0
        same(await asyncio.gather(*tasks), expected)
        total = sum(len(result.token_ids) for result in expected)
        assert first.counters.generated_tokens + second.counters.generated_tokens == total, "nothing was sampled twice"
        count = first.counters.requests
        async with served(first, port):
            await until(lambda: "a" in router.up)
            await asyncio.gather(*await ask(router, [replace(r, request_id=f"again {r.request_id}") for r in requests]))
        assert first.counters.requests > count, "it came back, and is used again"
        await router.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("dies", ["its process", "its engine"])
async def test_tokens_reported_before_an_engine_died_are_kept(engine_of: Builder, dies: str) -> None:
    (request,) = long_requests(1, max_tokens=200)
    expected = await engine_of(make_model()).generate(request)
    first, second = engine_of(make_model()), engine_of(make_model())
    app, extend, dead = make_app(first), first.forward.extend, threading.Event()
    app.on_shutdown.clear()  # it has no time to hand anything over

    def until_dead(spans: list[Span]) -> torch.Tensor:
        if first.counters.generated_tokens >= 100 and dead.wait(60):
            raise RuntimeError("out of memory")
        return extend(spans)

    first.forward.extend = until_dead  # type: ignore[method-assign]
    async with served(second) as stays:
        async with serving(app) as url:
            leaves = HttpEngine(lambda: url, deadline_seconds=0.2, part_seconds=0.01)
            router = Router({"a": leaves, "b": stays})
            (task,) = await ask(router, [request])
            await until(lambda: first.counters.generated_tokens == 100)
            await asyncio.sleep(0.5)  # time to tell them
            if dies == "its engine":
                dead.set()
                same([await task], [expected])
        same([await task], [expected])
        dead.set()
        assert second.counters.generated_tokens == 200 - 99, "all but the newest token is told"
        await router.close()


async def test_the_only_engine_may_end_and_come_back_in_mid_response(engine_of: Builder) -> None:
    (request,) = long_requests(1)
    expected = await engine_of(make_model()).generate(request)
    first, second, port = engine_of(make_model()), engine_of(make_model()), free_port()
    async with served(first, port) as client:
        router = Router({"a": client}, probe_seconds=0.1)
        gate = Gate(first, tokens=20)
        (task,) = await ask(router, [request])
        await gate.reached()
        opening = asyncio.create_task(gate.open(commands=1))
    await opening
    async with served(second, port):
        same([await task], [expected])
    assert second.counters.generated_tokens < len(expected.token_ids), "it goes on from what there was"
    await router.close()


async def test_a_response_never_goes_back_to_an_older_policy(engine_of: Builder, tmp_path: Path) -> None:
    newer, older = engine_of(make_model()), engine_of(make_model())
    folder = tmp_path / "policy"
    make_model(seed=1).save_pretrained(folder)
    write_canary(folder, make_model(seed=1), [fixed_sequence(512, 64)])
    await newer.load_policy(folder, 1)
    async with served(newer) as leaves:
        router = Router({"newer": leaves, "older": older})
        gate = Gate(newer, tokens=5)
        (task,) = await ask(router, long_requests(1))
        await gate.reached()
        opening = asyncio.create_task(gate.open(commands=1))
    await opening
    result = await task
    assert result.versions == [0] * 150
    assert result.token_ids == (await older.generate(replace(long_requests(1)[0], request_id="alone"))).token_ids
    assert await router.version() == 0
    await leaves.close()


async def test_an_abort_ends_a_request_even_while_its_engine_ends(engine_of: Builder) -> None:
    first = engine_of(make_model())
    async with served(first) as leaves:
        router = Router({"a": leaves, "b": engine_of(make_model())})
        (request,) = long_requests(1, max_tokens=200)
        gate = Gate(first, tokens=5)
        (task,) = await ask(router, [request])
        await gate.reached()
        await router.abort(request.request_id)
        opening = asyncio.create_task(gate.open(commands=1))
    await opening
    result = await task
    assert result.finish_reason is FinishReason.ABORT
    assert len(result.token_ids) < 200
    await router.abort("nobody knows it")
    await leaves.close()


async def test_a_request_that_makes_no_sense_is_refused_and_costs_no_engine(engine_of: Builder) -> None:
    router = Router({"a": engine_of(make_model())})
    (request,) = make_requests(1)
    with pytest.raises(RefusedRequestError):
        await router.generate(replace(request, prompt_ids=[10**6]))
    await router.generate(request)


async def test_without_any_engine_it_says_so(engine_of: Builder) -> None:
    engine = engine_of(make_model())
    router = Router({"a": engine}, deadline_seconds=0.2, probe_seconds=10.0)
    await engine.close()
    with pytest.raises(EngineError, match="none of the engines answers"):
        await router.generate(make_requests(1)[0])
    with pytest.raises(EngineError, match="none of the engines"):
        await router.version()


async def test_engines_that_are_asked_again_and_again_in_vain_are_given_up(engine_of: Builder) -> None:
    """The deadline counts from the first failure."""
    engines = {name: engine_of(make_model()) for name in "ab"}
    router = Router(engines, deadline_seconds=0.3, probe_seconds=0.01)
    for engine in engines.values():
        await engine.close()
    async with asyncio.timeout(10):
        with pytest.raises(EngineError, match="none of the engines answers"):
            await router.generate(make_requests(1)[0])


class Counting:
    """An engine that counts what it is asked for."""

    def __init__(self, engine: TorchEngine) -> None:
        self.engine, self.asked = engine, 0
        self.abort, self.version, self.close = engine.abort, engine.version, engine.close

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        self.asked += 1
        return await self.engine.generate(request)

    async def state(self) -> EngineState:
        return EngineState(await self.version())


async def test_a_dead_engine_is_asked_once_however_little_work_it_has(engine_of: Builder) -> None:
    dead, alive = Counting(engine_of(make_model())), engine_of(make_model())
    await dead.engine.close()
    router = Router({"dead": dead, "alive": alive}, probe_seconds=0.001)
    for request in make_requests(20):
        await router.generate(request)
        await asyncio.sleep(0.005)  # several health checks
    assert dead.asked == 1
    dead.version = alive.version  # it is back
    dead.engine = alive
    await until(lambda: "dead" in router.up)
    await asyncio.gather(*(router.generate(request) for request in make_requests(4)))
    assert dead.asked > 1
    await router.close()


async def test_an_abort_is_not_lost_while_a_request_waits_for_an_engine(engine_of: Builder) -> None:
    engine = engine_of(make_model())
    counting = Counting(engine)
    answers = asyncio.Event()

    async def fail() -> int:
        if not answers.is_set():
            raise EngineError("not yet")
        return await engine.version()

    counting.version = fail  # type: ignore[method-assign]
    router = Router({"a": counting}, probe_seconds=0.001)
    with pytest.raises(EngineError, match="none of the engines"):
        await router.version()
    (request,) = long_requests(1)
    (task,) = await ask(router, [request])
    await router.abort(request.request_id)
    answers.set()
    result = await task
    assert (result.finish_reason, result.token_ids, counting.asked) == (FinishReason.ABORT, [], 0)


@pytest.mark.parametrize(("version", "aborted"), [(-1, False), (-1, True), (0, True)])
async def test_a_request_that_moves_keeps_its_next_engine_open_and_may_be_aborted_meanwhile(
    engine_of: Builder, version: int, aborted: bool
) -> None:
    """The next engine leaves the run while it is asked for its version, which may be older than that of the tokens."""
    first, second = engine_of(make_model()), Counting(engine_of(make_model()))
    asked, goes_on, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow() -> int:
        asked.set()
        await goes_on.wait()
        return version

    async def close() -> None:
        closed.set()

    second.close = close  # type: ignore[method-assign]
    async with served(first) as leaves:
        router = Router({"a": leaves, "b": second})
        (request,) = long_requests(1, max_tokens=200)
        (task,) = await ask(router, [request])
        await until(lambda: first.counters.generated_tokens > 5)
        second.version = slow  # type: ignore[method-assign]
    await asked.wait()
    await router.follow({"a"}, lambda _: leaves)
    assert not closed.is_set()
    if aborted:
        await router.abort(request.request_id)
    goes_on.set()
    result = await task
    if aborted:
        assert result.finish_reason is FinishReason.ABORT and 5 < len(result.token_ids) < 200 and second.asked == 0
    else:
        assert len(result.token_ids) == 200 and second.asked == 1
    await router.follow({"a"}, lambda _: leaves)
    assert closed.is_set()
    await router.close()
