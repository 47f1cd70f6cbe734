"""How close is the embedded engine to the machine's limit?

There are five contenders: Quartet's engine, `generate` of `transformers`, vLLM and llama.cpp's server if they are
installed, and a hand-written decode loop as the limit. All have the same model, requests, cores, number of threads and
precision. The model is a Qwen3 with 3.4 M parameters, or that of `--model`, for which there is no hand-written loop;
llama.cpp needs a model of the architecture Llama, and the packages xllamacpp and gguf. The
contenders run in turn within every repetition, so that other load affects all of them; ratios are medians over the
repetitions. One call is prefill and decode of the whole workload, submitted at once. Each cell states how far
Quartet's engine is from the bandwidth of a copy in memory and from the speed of a large matrix product, both measured
with the cell's threads. Finally the cost of a weight update is measured while 32 requests decode.
"""

import importlib.util
import json
import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import click
import psutil
import torch

from benchmarks.engine_contenders import base, work
from benchmarks.engine_contenders.bare_loop import BareLoop
from benchmarks.engine_contenders.base import Contender, Workload
from benchmarks.engine_contenders.generate import Generate
from benchmarks.engine_contenders.llama_cpp import LlamaCpp
from benchmarks.engine_contenders.ours import Ours
from benchmarks.engine_contenders.swap import swap_costs
from benchmarks.engine_contenders.transport import transport_ms_p50
from benchmarks.engine_contenders.vllm import Vllm
from benchmarks.processor_time import Timer, processor_seconds, wall_seconds
from quartet.cli.parameters import PolicyOrRun

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
CLOCKS: dict[str, Timer] = {"wall": wall_seconds, "cpu": processor_seconds}
GROUP = 8
TURNS = 6
OBSERVATION_TOKENS = 96
TURN_TOKENS = 32


class Lengths(NamedTuple):
    """Tokens of a request."""

    prompt: int
    new: int


Cells = dict[str, dict[str, float]]
"""Tokens per second by cell (`distinct/32/float32/1`: workload, concurrent, dtype, threads), then by contender. The key
`ours/NAME` has the median of the paired ratios; `share_of_bandwidth` and `share_of_products` are of `ours`."""


@click.command()
@click.option("--concurrent", default="1,8,32,64", show_default=True)
@click.option("--dtypes", default="float32,bfloat16", show_default=True)
@click.option("--threads", default="1,2", show_default=True)
@click.option("--workloads", default="distinct,shared,conversations", show_default=True)
@click.option("--prompt-tokens", default=256, show_default=True, help="Tokens of a first prompt.")
@click.option("--new-tokens", default=48, show_default=True, help="New tokens of single-turn requests.")
@click.option("--repetitions", default=5, show_default=True)
@click.option(
    "--clock",
    default="wall",
    type=click.Choice(list(CLOCKS)),
    show_default=True,
    help="cpu counts all threads, and the processes of vLLM.",
)
@click.option("--model", type=PolicyOrRun(), help="Folder or name of a model, such as smollm2-135m.")
@click.option("--quick", is_flag=True, help="Only check that everything works, with a smaller run.")
@click.option("--json", "as_json", is_flag=True)
def main(
    concurrent: str,
    dtypes: str,
    threads: str,
    workloads: str,
    prompt_tokens: int,
    new_tokens: int,
    repetitions: int,
    clock: str,
    model: Path | None,
    quick: bool,
    as_json: bool,
) -> None:
    """Measure the engine."""
    if quick:
        concurrent, dtypes, threads, repetitions, new_tokens = "8", "float32", "1", 1, 8
    lengths = Lengths(prompt_tokens, new_tokens)
    cells: Cells = {}
    transport, cores, seconds_of = 0.0, os.sched_getaffinity(0), CLOCKS[clock]
    for dtype, thread_count in product(dtypes.split(","), map(int, threads.split(","))):
        torch.set_num_threads(thread_count)
        os.sched_setaffinity(0, range(thread_count))  # inherited by threads and processes that start later
        with contenders(model, DTYPES[dtype], thread_count, max(map(int, concurrent.split(",")))) as all_of_them:
            ours = next(contender for contender in all_of_them if isinstance(contender, Ours))
            limits = work.limits(ours.model, seconds_of)
            for name, count in cases(workloads.split(","), list(map(int, concurrent.split(",")))):
                cell = compare(all_of_them, name, count, lengths, repetitions, seconds_of)
                asked = requests(name, count, lengths, seed="sizes")
                cell |= limits.shares(work.work_of(asked, ours.model), asked.generated_tokens / cell[Ours.name])
                cells[f"{name}/{count}/{dtype}/{thread_count}"] = cell
                figures = "  ".join(f"{key} {value:,.2f}" for key, value in cell.items())
                click.echo(f"{name:13} {count:3} {dtype:8} {thread_count}  {figures}")
            transport = transport_ms_p50(ours, 10 if quick else 200)
    os.sched_setaffinity(0, cores)
    swap = swap_costs(base.loader(model), DTYPES[dtypes.split(",")[0]], 1, 8 if quick else 32, 1 if quick else 3)
    result = summary(cells) | swap | {"transport_ms_p50": round(transport, 3), "clock": clock, "cells": cells}
    result["load_average_1min"] = round(psutil.getloadavg()[0], 2)
    click.echo(json.dumps(result) if as_json else "\n".join(f"{k:32} {v}" for k, v in result.items() if k != "cells"))


def cases(workloads: list[str], concurrent: list[int]) -> list[tuple[str, int]]:
    """Return (workload, concurrent requests) of every cell; the workload `shared` needs whole groups."""
    return [case for case in product(workloads, concurrent) if case[0] != "shared" or case[1] % GROUP == 0]


@contextmanager
def contenders(folder: Path | None, dtype: torch.dtype, threads: int, slots: int) -> Iterator[list[Contender]]:
    """Yield all contenders that can run here, each with its own model; the weights are equal."""
    load = base.loader(folder)
    everybody: list[Contender] = [Generate(load(dtype)), Ours(load(dtype), threads, slots)]
    if folder is None:
        everybody.append(BareLoop(load(dtype)))
    with ExitStack() as stack:
        if folder and importlib.util.find_spec("xllamacpp"):
            from benchmarks.engine_contenders import gguf_file

            file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "model.gguf"
            if gguf_file.write(load(dtype), folder, file):
                everybody.append(LlamaCpp(file, dtype, threads, slots))
        if importlib.util.find_spec("vllm"):
            copy = stack.enter_context(tempfile.TemporaryDirectory())
            model = load(dtype)
            model.save_pretrained(copy)
            everybody.append(Vllm(model, copy, threads))
        for contender in everybody:
            stack.enter_context(closing(contender))
        yield everybody


def compare(
    everybody: list[Contender], name: str, count: int, lengths: Lengths, repetitions: int, seconds_of: Timer
) -> dict[str, float]:
    """Return the median tokens per second of each contender, and the median ratio of Quartet's engine to each.

    Every repetition has new requests.
    """
    seconds: dict[str, list[float]] = {contender.name: [] for contender in everybody}
    ours = next(contender for contender in everybody if isinstance(contender, Ours))
    reused_tokens = ours.engine.counters.reused_tokens
    # Every call has new prompts, because a prefix cache lives as long as its contender.
    warm_up = requests(
        name, min(count, GROUP), lengths._replace(new=min(lengths.new, 4)), seed=f"{name}/{count}/warm-up"
    )
    for contender in everybody:
        contender.run(warm_up, seed=0)
    workloads = [requests(name, count, lengths, seed=f"{name}/{count}/{index}") for index in range(repetitions)]
    for repetition, workload in enumerate(workloads):
        for turn in range(len(everybody)):  # the first contender changes with the repetition
            contender = everybody[(turn + repetition) % len(everybody)]
            seconds[contender.name].append(seconds_of(partial(contender.run, workload, seed=repetition)))
    assert name != "distinct" or ours.engine.counters.reused_tokens == reused_tokens, "a prompt was known already"
    generated_tokens = workloads[0].generated_tokens
    figures = {who: generated_tokens / statistics.median(values) for who, values in seconds.items()}
    for other, values in seconds.items():
        if other != Ours.name:
            paired = [theirs / ours for theirs, ours in zip(values, seconds[Ours.name], strict=True)]
            figures[f"{Ours.name}/{other}"] = statistics.median(paired)
    return {key: round(value, 3) for key, value in figures.items()}


def requests(name: str, count: int, lengths: Lengths, seed: str) -> Workload:
    """Return the workload of this name."""
    if name == "distinct":
        return base.distinct(count, lengths.prompt, lengths.new, seed)
    if name == "shared":
        return base.shared(count, GROUP, lengths.prompt, lengths.new, seed)
    return base.conversations(count, TURNS, lengths.prompt, OBSERVATION_TOKENS, min(lengths.new, TURN_TOKENS), seed)


def summary(cells: Cells) -> dict[str, float | None]:
    """Return geometric means over dtypes, threads and 32 to 64 concurrent requests, or over all cells if none has
    these.
    """
    result = {
        "ratio_to_generate": _mean(cells, "distinct", "generate"),
        "ratio_to_vllm": _mean(cells, "distinct", "vllm"),
        "ratio_to_llama_cpp": _mean(cells, "distinct", "llama_cpp"),
        "ratio_to_bare_loop": _mean(cells, "distinct", "bare_loop"),
        "ratio_to_generate_shared_prompt": _mean(cells, "shared", "generate"),
        "ratio_to_generate_multi_turn": _mean(cells, "conversations", "generate"),
    }
    limits = [
        cell["bare_loop"] / cell["generate"]
        for key, cell in cells.items()
        if key.startswith("distinct/64/") and "bare_loop" in cell
    ]
    return result | {"bare_loop_to_generate_64": round(statistics.geometric_mean(limits), 3) if limits else None}


def _mean(cells: Cells, workload: str, other: str) -> float | None:
    measured = {key: cell.get(f"{Ours.name}/{other}") for key, cell in cells.items() if key.startswith(f"{workload}/")}
    wanted = {key: value for key, value in measured.items() if key.split("/")[1] in ("32", "64")} or measured
    values = [value for value in wanted.values() if value is not None]
    return round(statistics.geometric_mean(values), 3) if values else None


if __name__ == "__main__":
    main()
