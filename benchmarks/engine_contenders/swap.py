"""Cost of a weight update for an engine that decodes: the pause of the swap, and tokens computed again afterwards."""

import asyncio
import statistics
import tempfile
from pathlib import Path
from typing import Any, Literal

import torch
from msgspec import Struct

from benchmarks.engine_contenders.base import MAX_CONTEXT_TOKENS, VOCAB_SIZE, Loader, distinct
from quartet.config import Engine
from quartet.engine.base import GenerateRequest
from quartet.engine.torch_engine import TorchEngine
from quartet.policy.canary import fixed_sequence, write_canary
from quartet.types import Sampling

CANARY_TOKENS = 256
PAUSE_SECONDS = 2.0
"""Time between two loads, as with a trainer of a small model."""


class Costs(Struct, frozen=True):
    """Costs of the weight updates of one engine."""

    swap_ms: list[float]
    recompute_ms: list[float]
    """Time for computing keys and values again after each load, until the next load."""
    tokens_per_second: float
    """Tokens sampled per second, from the first load to the end of the last pause."""


def swap_costs(load: Loader, dtype: torch.dtype, threads: int, concurrent: int, loads: int) -> dict[str, float]:
    """Return the costs for the loaded model and `concurrent` requests in flight.

    `recompute_to_keep` is a ratio of tokens per second.
    """
    with tempfile.TemporaryDirectory() as folder:
        policies = [_publish(load, Path(folder) / str(seed), seed) for seed in range(2)]
        measured = {
            kv_cache_on_weight_update: asyncio.run(
                _measure(load, kv_cache_on_weight_update, dtype, threads, concurrent, policies * loads)
            )
            for kv_cache_on_weight_update in ("keep", "recompute")
        }
    recompute = measured["recompute"]
    return {
        "swap_ms_p50": round(statistics.median(recompute.swap_ms), 2),
        "swap_ms_max": round(max(recompute.swap_ms), 2),
        "recompute_ms_p50": round(statistics.median(recompute.recompute_ms), 2),
        "recompute_to_keep": round(recompute.tokens_per_second / measured["keep"].tokens_per_second, 3),
    }


async def _measure(
    load: Loader,
    kv_cache_on_weight_update: Literal["keep", "recompute"],
    dtype: torch.dtype,
    threads: int,
    concurrent: int,
    policies: list[Path],
) -> Costs:
    config = Engine(
        max_slots=concurrent,
        max_context_tokens=MAX_CONTEXT_TOKENS,
        threads=threads,
        kv_cache_on_weight_update=kv_cache_on_weight_update,
    )
    engine = TorchEngine(load(dtype), 0, config)
    counters, loop = engine.counters, asyncio.get_running_loop()
    tasks = [asyncio.create_task(_keep_busy(engine, prompt)) for prompt in distinct(concurrent, 256, 1, "swap").prompts]
    while counters.generated_tokens < 4 * concurrent:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    began, tokens, swap_ms, recompute_ms = loop.time(), counters.generated_tokens, [], []
    for version, policy in enumerate(policies, start=1):
        lost = counters.recompute_ms
        swap_ms.append((await engine.load_policy(policy, version)).swap_ms)
        await asyncio.sleep(PAUSE_SECONDS)
        recompute_ms.append(counters.recompute_ms - lost)
    rate = (counters.generated_tokens - tokens) / (loop.time() - began)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await engine.close()
    return Costs(swap_ms, recompute_ms, rate)


async def _keep_busy(engine: TorchEngine, prompt: list[int]) -> None:
    """Generate one response after the other, each as long as the context allows."""
    number = 0
    while True:
        request_id = f"{prompt[:8]}/{number}"
        sampling = Sampling(max_tokens=MAX_CONTEXT_TOKENS, seed=number)
        await engine.generate(
            GenerateRequest(request_id=request_id, prompt_ids=prompt, sampling=sampling, stop_token_ids=[])
        )
        number += 1


def _publish(load: Loader, folder: Path, seed: int) -> Path:
    """Publish a policy as a trainer does, one train step after the model of all contenders; return its folder."""
    model: Any = load(torch.float32)
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 1e-3 * torch.randn(parameter.shape, generator=noise)
    model.save_pretrained(folder)
    write_canary(folder, model, [fixed_sequence(VOCAB_SIZE, CANARY_TOKENS)] * 2)
    return folder
