"""New weights arrive between two decode steps, proven before they serve, with requests in flight."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
import torch
from engine_models import MAX_CONTEXT_TOKENS, make_model, make_requests, until
from safetensors.torch import load_file, save_file
from transformers import DynamicCache, PreTrainedModel

from quartet.errors import CheckpointError, EngineError
from quartet.policy.canary import fixed_sequence, write_canary
from quartet.rollout.engine.base import GenerateRequest
from quartet.rollout.engine.torch_engine import TorchEngine
from quartet.types import Sampling

Builder = Callable[..., TorchEngine]


def publish(model: PreTrainedModel, folder: Path) -> Path:
    model.save_pretrained(folder)
    write_canary(folder, model, [fixed_sequence(model.config.vocab_size, 64)])
    return folder


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


async def test_every_token_comes_from_the_version_it_claims(engine_of: Builder, tmp_path: Path) -> None:
    old, new = make_model(seed=0), make_model(seed=1)
    engine = engine_of(make_model(seed=0))
    sampling = Sampling(temperature=0.0, max_tokens=200)
    folder = publish(new, tmp_path / "policy")
    prompts = [request.prompt_ids[:20] for request in make_requests(3)]
    requests = [
        GenerateRequest(request_id=str(index), prompt_ids=prompt, sampling=sampling, stop_token_ids=[])
        for index, prompt in enumerate(prompts)
    ]
    tasks = [asyncio.create_task(engine.generate(request)) for request in requests]
    await until(lambda: engine.counters.generated_tokens > 10)
    load = await engine.load_policy(folder, 1)
    assert (load.version, await engine.version()) == (1, 1)
    assert load.canary_gap is not None and load.canary_gap < 1e-3
    for request, result in zip(requests, await asyncio.gather(*tasks), strict=True):
        swap = result.versions.index(1)
        assert result.versions == [0] * swap + [1] * (200 - swap)
        assert swap > 0
        tokens, logprobs = zip(*greedy_across_a_swap(old, new, request, result.versions), strict=True)
        assert result.token_ids == list(tokens)
        assert result.logprobs == pytest.approx(logprobs, abs=1e-4)


async def test_after_a_load_the_engine_equals_one_started_with_the_new_weights(
    engine_of: Builder, tmp_path: Path
) -> None:
    engine, fresh = engine_of(make_model(seed=0)), engine_of(make_model(seed=1), version=1)
    await engine.load_policy(publish(make_model(seed=1), tmp_path / "policy"), 1)
    for request in make_requests(5):
        assert await engine.generate(request) == await fresh.generate(request)


def other_canary(folder: Path) -> None:
    write_canary(folder, make_model(seed=2), [fixed_sequence(512, 64)])


def truncated(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def missing_tensor(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({name: tensor for name, tensor in weights.items() if "q_proj" not in name}, folder / "model.safetensors")


def not_finite(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({name: tensor * torch.nan for name, tensor in weights.items()}, folder / "model.safetensors")


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize("damage", [other_canary, truncated, missing_tensor, not_finite, no_weights])
async def test_a_damaged_policy_is_refused_and_the_old_one_serves_on(
    damage: Callable[[Path], None], engine_of: Builder, tmp_path: Path
) -> None:
    engine = engine_of(make_model(seed=0), prefix_cache_megabytes=0)  # equal to the last bit
    request = make_requests(1, temperature=0.0)[0]
    before = await engine.generate(request)
    folder = publish(make_model(seed=1), tmp_path / "policy")
    damage(folder)
    with pytest.raises(CheckpointError, match="policy"):
        await engine.load_policy(folder, 1)
    assert await engine.generate(request) == before
    assert await engine.version() == 0


async def test_a_policy_without_canary_loads_and_says_so(engine_of: Builder, tmp_path: Path) -> None:
    engine = engine_of(make_model(seed=0))
    make_model(seed=1).save_pretrained(tmp_path / "policy")
    assert (await engine.load_policy(tmp_path / "policy", 4)).canary_gap is None
    assert (await engine.generate(make_requests(1)[0])).versions[0] == 4


async def test_loads_while_busy_lose_nothing(engine_of: Builder, tmp_path: Path) -> None:
    engine = engine_of(make_model(seed=0), max_slots=3)
    folders = [publish(make_model(seed=seed), tmp_path / str(seed)) for seed in range(1, 4)]
    requests = make_requests(30)
    tasks = [asyncio.create_task(engine.generate(request)) for request in requests]
    for version, folder in enumerate(folders, start=1):
        await engine.load_policy(folder, version)
    for request, result in zip(requests, await asyncio.gather(*tasks), strict=True):
        assert len(result.token_ids) == min(request.sampling.max_tokens, MAX_CONTEXT_TOKENS - len(request.prompt_ids))
        assert result.versions == sorted(result.versions)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_load_that_breaks_the_engine_says_so(engine_of: Builder, tmp_path: Path) -> None:
    """Not a bad policy but a failing machine: nobody waits for ever, and the process can end and start again."""
    folder, model = publish(make_model("gpt2", seed=1), tmp_path / "policy"), make_model("gpt2")
    engine = engine_of(model)

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    model.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        async with asyncio.timeout(30):
            await engine.load_policy(folder, 1)
    await engine.close()
    with pytest.raises(EngineError, match="out of memory"):
        await engine.version()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_at_the_end_a_failing_command_does_not_silence_the_others(engine_of: Builder, tmp_path: Path) -> None:
    folder, model = publish(make_model("gpt2", seed=1), tmp_path / "policy"), make_model("gpt2")
    engine, reached, go_on = engine_of(model), Event(), Event()

    def fail(*_: object) -> None:
        reached.set()
        go_on.wait(30)
        raise RuntimeError("out of memory")

    model.register_forward_pre_hook(fail)
    running, waiting = make_requests(2)
    tasks: list[asyncio.Task[object]] = [asyncio.create_task(engine.generate(running))]
    await until(reached.is_set)
    tasks.append(asyncio.create_task(engine.load_policy(folder, 1)))
    await until(lambda: engine._commands.qsize() == 1)
    tasks.append(asyncio.create_task(engine.generate(waiting)))
    await until(lambda: engine._commands.qsize() == 2)
    go_on.set()
    async with asyncio.timeout(30):
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [EngineError, RuntimeError, EngineError]
