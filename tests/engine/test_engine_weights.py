"""New weights arrive between two decode steps, proven before they serve, with requests in flight."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
import torch
from engine_models import Gate, make_model, make_requests, publish
from msgspec.structs import replace
from transformers import DynamicCache, PreTrainedModel

from quartet.engine.base import GenerateRequest
from quartet.engine.result_check import find_problem
from quartet.engine.torch_engine import TorchEngine
from quartet.errors import EngineError
from quartet.types import Sampling
from tests.waiting import until

pytestmark = pytest.mark.slow

Builder = Callable[..., TorchEngine]


@torch.inference_mode()
def greedy_across_a_swap(
    old: PreTrainedModel, new: PreTrainedModel, request: GenerateRequest, versions: list[int]
) -> list[tuple[int, float]]:
    """Greedy (token, log-prob) pairs, each from the model its version names, the cache carried over the swap."""
    cache = DynamicCache()
    ids, drawn = torch.tensor([request.prompt_ids]), []
    for version in versions:
        logprobs = (old, new)[version](input_ids=ids, past_key_values=cache).logits[0, -1].log_softmax(-1)
        ids = logprobs.argmax().reshape(1, 1)
        drawn.append((int(ids), float(logprobs.max())))
    return drawn


async def test_kept_caches_are_carried_over_the_swap(engine_of: Builder, tmp_path: Path) -> None:
    old, new = make_model(seed=0), make_model(seed=1)
    engine = engine_of(make_model(seed=0), kv_cache_on_weight_update="keep")
    sampling = Sampling(temperature=0.0, max_tokens=200)
    folder = publish(new, tmp_path / "policy")
    prompts = [request.prompt_ids[:20] for request in make_requests(3)]
    requests = [
        GenerateRequest(request_id=str(index), prompt_ids=prompt, sampling=sampling, stop_token_ids=[])
        for index, prompt in enumerate(prompts)
    ]
    gate = Gate(engine, tokens=10)
    tasks = [asyncio.create_task(engine.generate(request)) for request in requests]
    await gate.reached()
    loading = asyncio.create_task(engine.load_policy(folder, 1))
    await gate.open(commands=1)
    load = await loading
    assert (load.version, await engine.version()) == (1, 1)
    assert load.canary_gap is not None and load.canary_gap < 1e-3
    for request, result in zip(requests, await asyncio.gather(*tasks), strict=True):
        swap = result.versions.index(1)
        assert result.versions == [0] * swap + [1] * (200 - swap)
        assert result.cache_versions == [0] * 200
        assert swap > 0
        tokens, logprobs = zip(*greedy_across_a_swap(old, new, request, result.versions), strict=True)
        assert result.token_ids == list(tokens)
        assert result.logprobs == pytest.approx(logprobs, abs=1e-4)


@pytest.mark.parametrize("kv_cache_on_weight_update", ["recompute", "keep"])
async def test_after_a_roll_back_requests_in_flight_begin_again(
    engine_of: Builder, tmp_path: Path, kv_cache_on_weight_update: str
) -> None:
    engine = engine_of(make_model(seed=0), version=5, kv_cache_on_weight_update=kv_cache_on_weight_update)
    quiet = engine_of(make_model(seed=1), version=3)
    folder = publish(make_model(seed=1), tmp_path / "policy")
    requests = [replace(request, sampling=Sampling(max_tokens=40, seed=7)) for request in make_requests(3)]
    gate = Gate(engine, tokens=10)
    tasks = [asyncio.create_task(engine.generate(request)) for request in requests]
    await gate.reached()
    loading = asyncio.create_task(engine.load_policy(folder, 3))
    await gate.open(commands=1)
    await loading
    for request, result in zip(requests, await asyncio.gather(*tasks), strict=True):
        assert find_problem(request, result) == ""
        assert set(result.versions) == {3} and not result.cache_versions
        assert result.token_ids == (await quiet.generate(request)).token_ids


async def test_after_a_load_the_engine_equals_one_started_with_the_new_weights(
    engine_of: Builder, tmp_path: Path
) -> None:
    engine, fresh = engine_of(make_model(seed=0)), engine_of(make_model(seed=1), version=1)
    await engine.load_policy(publish(make_model(seed=1), tmp_path / "policy"), 1)
    for request in make_requests(5):
        assert await engine.generate(request) == await fresh.generate(request)


async def test_a_policy_without_canary_loads_and_says_so(engine_of: Builder, tmp_path: Path) -> None:
    engine = engine_of(make_model(seed=0))
    make_model(seed=1).save_pretrained(tmp_path / "policy")
    assert (await engine.load_policy(tmp_path / "policy", 4)).canary_gap is None
    assert (await engine.generate(make_requests(1)[0])).versions[0] == 4


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_load_that_breaks_the_engine_says_so(engine_of: Builder, tmp_path: Path) -> None:
    """Not a bad policy but a failing machine: nobody waits for ever, and the process can end and start again."""
    folder, engine = publish(make_model(seed=1), tmp_path / "policy"), engine_of(make_model())

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    engine.forward.extend = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="out of memory"):
        async with asyncio.timeout(30):
            await engine.load_policy(folder, 1)
    await engine.close()
    with pytest.raises(EngineError, match="out of memory"):
        await engine.version()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_at_the_end_a_failing_command_does_not_silence_the_others(engine_of: Builder, tmp_path: Path) -> None:
    folder, engine = publish(make_model(seed=1), tmp_path / "policy"), engine_of(make_model())
    reached, go_on = Event(), Event()

    def fail(*_: object) -> None:
        reached.set()
        go_on.wait(30)
        raise RuntimeError("out of memory")

    engine.forward.extend = fail  # type: ignore[method-assign]
    running, waiting = make_requests(2)
    tasks: list[asyncio.Task[object]] = [asyncio.create_task(engine.generate(running))]
    await until(reached.is_set)
    tasks.append(asyncio.create_task(engine.load_policy(folder, 1)))
    await until(lambda: engine.queued_commands == 1)
    tasks.append(asyncio.create_task(engine.generate(waiting)))
    await until(lambda: engine.queued_commands == 2)
    go_on.set()
    async with asyncio.timeout(30):
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [EngineError, RuntimeError, EngineError]
