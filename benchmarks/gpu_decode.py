"""How close is decoding on a GPU to the limit of its memory?

A decode step reads all weights, and the keys and values of every running request. This benchmark makes a Qwen3 with
random weights in bfloat16 on the device, and measures the time of a step in the forward pass alone, kernel by kernel
and as a CUDA graph, and in the whole engine with scheduler and sampling. `share_of_bandwidth` is the time that reading
these bytes takes at the memory's peak bandwidth, divided by the measured time. All requests have the same prompt, as a
group has, and differ in their seeds.

    python -m benchmarks.gpu_decode --json
"""

import asyncio
import json
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import click
import torch

from benchmarks.gpu import SIZES, VOCABULARY, data_sheet, untrained_qwen3
from quartet.config import Engine
from quartet.engine.base import GenerateRequest
from quartet.engine.dense_forward import DenseForward
from quartet.engine.forward import Span
from quartet.engine.torch_engine import TorchEngine
from quartet.errors import ConfigError
from quartet.types import Sampling

REPETITIONS, STEPS = 5, 20
PROFILED_STEPS = 5


@click.command()
@click.option("--size", type=click.Choice(list(SIZES)), default="1.5B", show_default=True)
@click.option("--rows", default=64, show_default=True, help="Concurrent requests.")
@click.option("--context", default="256,1024,4096", show_default=True, help="Mean tokens of a request.")
@click.option("--new-tokens", default=128, show_default=True, help="Tokens that each request samples.")
@click.option("--profile", is_flag=True, help="Print the kernels of a step that take longest, to stderr.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else.")
def main(size: str, rows: int, context: str, new_tokens: int, profile: bool, as_json: bool) -> None:
    """Measure decoding on this machine's GPU."""
    name, sheet = data_sheet()
    started, contexts = time.perf_counter(), [int(each) for each in context.split(",")]
    if min(contexts) <= new_tokens:
        raise ConfigError(f"a context of {min(contexts)} leaves no prompt", "lower --new-tokens")
    model = untrained_qwen3(size, torch.bfloat16, max(contexts) + new_tokens)
    engine = make_engine(model, rows, max(contexts) + new_tokens)
    peak, copied = sheet.bytes_per_second, copy_bytes_per_second()
    result: dict[str, Any] = {
        "device": name,
        "torch": torch.__version__,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "rows": rows,
        "peak_bytes_per_second": peak,
        "copy_bytes_per_second": round(copied),
        "contexts": {},
    }
    for length in contexts:
        found = measure(engine, model, rows, length, new_tokens, profile=profile)
        cell = cell_of(found, rows, peak, copied)
        result["contexts"][length] = cell
        click.echo(f"context {length}: {cell}", err=True)
    asyncio.run(engine.close())
    result["seconds"] = round(time.perf_counter() - started, 1)
    click.echo(json.dumps(result) if as_json else json.dumps(result, indent=2))


class Measured(NamedTuple):
    """Seconds of one step over all rows, and the bytes that it has to read."""

    step_bytes: int
    eager: float
    graph: float
    engine: float


def cell_of(found: Measured, rows: int, peak: float, copied: float) -> dict[str, float]:
    """Return the figures of one context length."""
    cell: dict[str, float] = {"bytes_per_step": found.step_bytes}
    for name, seconds in (("eager", found.eager), ("graph", found.graph), ("engine", found.engine)):
        cell[f"{name}_ms"] = round(1e3 * seconds, 3)
        cell[f"{name}_share_of_copy_bandwidth"] = round(found.step_bytes / seconds / copied, 3)
        cell[f"{name}_share_of_bandwidth"] = round(found.step_bytes / seconds / peak, 3)
    cell["engine_tokens_per_second"] = round(rows / found.engine)
    return cell


def make_engine(model: Any, rows: int, longest: int) -> TorchEngine:
    """Return an engine whose rows may take what the weights and a reserve leave of the device's memory."""
    free_bytes, _ = torch.cuda.mem_get_info()
    settings = Engine.model_validate(
        {
            "name": "torch",
            "max_slots": rows,
            "max_context_tokens": longest,
            "kv_cache_megabytes": int(0.8 * free_bytes) // 2**20,
            "prefix_cache_megabytes": 4096,
        }
    )
    return TorchEngine(model, 0, settings)


def measure(engine: TorchEngine, model: Any, rows: int, context: int, new_tokens: int, *, profile: bool) -> Measured:
    """Measure steps over rows of `context` tokens: the forward pass alone, then the engine."""
    forward = engine.forward
    assert isinstance(forward, DenseForward)
    with torch.inference_mode(), forward.rows.aside():
        forward.rows.reserve(rows, context)
        forward.rows.keys.normal_()
        forward.rows.values.normal_()
        spans = [Span(context - 1, [row]) for row in range(rows)]
        graph = step_seconds(lambda: forward.extend(spans))
        eager = step_seconds(lambda: forward.extend_eagerly(spans))
        if profile:
            print_kernels(lambda: forward.extend(spans), f"a step at context {context}")
    keys = forward.rows.keys
    token_bytes = 2 * keys.shape[0] * keys.shape[2] * keys.shape[4] * keys.element_size()
    weight_bytes = sum(parameter.nbytes for parameter in model.parameters())
    step_bytes = weight_bytes + rows * context * token_bytes
    return Measured(step_bytes, eager, graph, asyncio.run(engine_step_seconds(engine, rows, context, new_tokens)))


def step_seconds(step: Callable[[], object]) -> float:
    """Return the median over repetitions of the mean time of a step, between two events on the device."""
    for _ in range(3):
        step()
    times = []
    for _ in range(REPETITIONS):
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        for _ in range(STEPS):
            step()
        ended.record()
        ended.synchronize()
        times.append(begun.elapsed_time(ended) / STEPS / 1e3)
    return statistics.median(times)


async def engine_step_seconds(engine: TorchEngine, rows: int, context: int, new_tokens: int) -> float:
    """Return the median time from one pass to the next in which all requests decode; the first run warms up."""
    prompt = [(7 * index + context) % VOCABULARY for index in range(context - new_tokens // 2)]
    calls: list[tuple[float, bool]] = []
    extend = engine.forward.extend

    def timed(spans: list[Span]) -> torch.Tensor:
        calls.append((time.perf_counter(), len(spans) == rows and all(len(span.token_ids) == 1 for span in spans)))
        return extend(spans)

    for turn in range(2):
        engine.forward.extend = timed if turn else extend  # type: ignore[method-assign]
        requests = [
            GenerateRequest(
                request_id=f"{context}-{turn}-{row}",
                prompt_ids=prompt,
                sampling=Sampling(max_tokens=new_tokens, seed=row, temperature=1.0),
                stop_token_ids=[],
            )
            for row in range(rows)
        ]
        await asyncio.gather(*map(engine.generate, requests))
    engine.forward.extend = extend  # type: ignore[method-assign]
    steps = [after[0] - before[0] for before, after in pairwise(calls) if before[1] and after[1]]
    return statistics.median(steps)


def copy_bytes_per_second() -> float:
    """Return how many bytes per second a copy on the device reads and writes together."""
    source = torch.empty(2**31, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / step_seconds(lambda: target.copy_(source))


def print_kernels(step: Callable[[], object], what: str) -> None:
    """Print the kernels that take longest, to stderr."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(PROFILED_STEPS):
            step()
        torch.cuda.synchronize()
    table = profiler.key_averages().table(sort_by="self_device_time_total", row_limit=15, max_name_column_width=60)
    click.echo(f"{what}, {PROFILED_STEPS} times:\n{table}", err=True)


if __name__ == "__main__":
    main()
