"""What does a train step cost, compared with TRL's GRPOTrainer, a bare packed loop, and branches trained apart?

Three batches (`trainer_contenders/batches.py`): very different lengths; groups that share a prompt;
trees of forks. A train step takes the batch's rollouts to new weights: forward pass, loss, gradient, clipping, AdamW.
The contenders take turns, each in a process of its own that keeps freed memory. Processor seconds are measured, so
other load disturbs less than with a clock.

Limits of the comparison:
- The model is a Qwen3 with 3.4 M parameters, or that of `--model`, with weights in float32, and one thread.
- The turns of TRL and of Quartet include advantages; TRL's also include rewards and decoding of tokens into text, and
  Quartet's include packing of calls into sequences. The bare loop starts from sequences with advantages.
- On a CPU, TRL applies the output head at every position, those of prompts and padding included. Its code that leaves
  these out needs Triton, and so a GPU. The ratios to TRL do not hold for a GPU.
- TRL and the contender `bare` use `torch.nn.Linear`. `bare_faster_library` is the bare loop with Quartet's linear
  layers (`quartet.policy.linear`).
"""

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.processor_time import processor_seconds
from benchmarks.trainer_contenders.base import MICROBATCH_TOKENS, Spent, Work, new_model
from benchmarks.trainer_contenders.batches import BATCHES, attention_pairs, prepared
from benchmarks.trainer_contenders.process import contenders
from quartet.cli.parameters import PolicyOrRun
from quartet.train.packing.branches import Branch

NAMES = {
    "variable": ["trl", "bare", "bare_faster_library", "ours"],
    "shared_prompt": ["trl", "bare", "bare_faster_library", "ours"],
    "tree": ["trl", "leaves", "ours"],
}
RATIOS = {
    "ratio_to_trl": ("variable", "trl"),
    "ratio_to_trl_shared_prompt": ("shared_prompt", "trl"),
    "ratio_tree_to_leaves": ("tree", "leaves"),
    "ratio_to_bare_loop": ("variable", "bare"),
    "ratio_to_bare_loop_shared_prompt": ("shared_prompt", "bare"),
    "ratio_to_bare_loop_faster_library": ("variable", "bare_faster_library"),
    "ratio_to_bare_loop_faster_library_shared_prompt": ("shared_prompt", "bare_faster_library"),
    "ratio_tree_to_trl": ("tree", "trl"),
}
"""Ratio -> the batch, and the contender whose processor seconds are divided by ours."""
Costs = dict[str, dict[str, list[Spent]]]
"""Cost of each train step, by batch and contender."""


def _multiple_of_32(context: click.Context, option: click.Parameter, rollouts: int) -> int:
    if rollouts < 32 or rollouts % 32:
        raise click.BadParameter(f"{rollouts} is not a positive multiple of 32")
    return rollouts


def _names(context: click.Context, option: click.Parameter, batches: str) -> list[str]:
    names = batches.split(",")
    if unknown := [name for name in names if name not in BATCHES]:
        raise click.BadParameter(f"no batch is called {unknown[0]!r}; the batches are {', '.join(BATCHES)}")
    return names


@click.command()
@click.option(
    "--repetitions",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Train steps of each contender after a warm-up.",
)
@click.option(
    "--rollouts",
    default=32,
    show_default=True,
    callback=_multiple_of_32,
    help="Rollouts of a batch, a multiple of 32.",
)
@click.option(
    "--batches", default=",".join(BATCHES), show_default=True, callback=_names, help="Names, separated by commas."
)
@click.option(
    "--without",
    type=click.Choice(sorted({name for names in NAMES.values() for name in names} - {"ours"})),
    multiple=True,
    help="Contender to leave out, if memory is short; may be repeated.",
)
@click.option("--model", type=PolicyOrRun(), help="Folder or name of a model, such as smollm2-135m.")
@click.option(
    "--microbatch-tokens",
    type=click.IntRange(min=1),
    default=MICROBATCH_TOKENS,
    show_default=True,
    help="Tokens of a microbatch, fewer if memory is short: TRL keeps the logits of all of them several times.",
)
@click.option(
    "--compute-dtype",
    type=click.Choice(["float32", "bfloat16"]),
    default="float32",
    show_default=True,
    help="Precision of Quartet's matrix products. The others compute in float32.",
)
@click.option("--json", "as_json", is_flag=True)
def main(
    repetitions: int,
    rollouts: int,
    batches: list[str],
    without: tuple[str, ...],
    model: Path | None,
    microbatch_tokens: int,
    compute_dtype: str,
    as_json: bool,
) -> None:
    """Measure train steps."""
    works = [Work(batch, rollouts, model, microbatch_tokens, compute_dtype) for batch in batches]
    costs = {work.batch: measure(work, repetitions, without) for work in works}
    result = ratios(costs) | {
        "batches": {
            batch: sizes(prepared(BATCHES[batch](rollouts)), of_batch, new_model(model), compute_dtype)
            for batch, of_batch in costs.items()
        }
    }
    click.echo(json.dumps(result) if as_json else json.dumps(result, indent=2))


def measure(work: Work, repetitions: int, left_out: Sequence[str] = ()) -> dict[str, list[Spent]]:
    """Return the cost of each contender's train steps, which take turns; the first is a warm-up."""
    found: dict[str, list[Spent]] = {name: [] for name in NAMES[work.batch] if name not in left_out}
    with contenders([*found], work) as everybody:
        for repetition in range(repetitions + 1):
            for place in range(len(everybody)):
                contender = everybody[(place + repetition) % len(everybody)]
                spent = contender.step()
                click.echo(f"{work.batch} {contender.name} {spent.processor_seconds:.2f} s", err=True)
                if repetition:
                    found[contender.name].append(spent)
    return found


def ratios(costs: Costs) -> dict[str, Any]:
    """Return medians of ratios, taken within each repetition, with the lowest and the highest."""
    result: dict[str, Any] = {}
    for name, (batch, other) in RATIOS.items():
        if other in costs.get(batch, {}):
            pairs = zip(costs[batch][other], costs[batch]["ours"], strict=True)
            found = sorted(theirs.processor_seconds / ours.processor_seconds for theirs, ours in pairs)
            result[name] = round(statistics.median(found), 3)
            result[f"{name}_spread"] = {"lowest": round(found[0], 3), "highest": round(found[-1], 3)}
    if "bare" in costs.get("variable", {}):
        ours, bare = (costs["variable"][name][-1].peak_bytes for name in ("ours", "bare"))
        result["memory_ratio_to_bare_loop"] = round(ours / bare, 3)
    return result


def sizes(
    branches: Sequence[Branch], costs: Mapping[str, Sequence[Spent]], model: Any, compute_dtype: str
) -> dict[str, Any]:
    """Return sizes of the batch, each contender's cost, and the share of our time that the matrix products alone would
    take."""
    nodes = {branch.ids_L[: end + 1].tobytes() for branch in branches for end in range(branch.num_tokens)}
    trained = sum(branch.num_trained_tokens for branch in branches)
    seconds = {
        name: round(statistics.median(one.processor_seconds for one in of_name), 3) for name, of_name in costs.items()
    }
    gflop = gigaflop(model, len(nodes), trained, attention_pairs(branches))
    rate = gigaflop_per_second(model, compute_dtype)
    return {
        "sequence_tokens": sum(branch.num_tokens for branch in branches),
        "distinct_tokens": len(nodes),
        "trained_tokens": trained,
        "seconds": seconds,
        "peak_mib": {name: round(of_name[-1].peak_bytes / 2**20) for name, of_name in costs.items()},
        "gigaflop": {name: round(number, 1) for name, number in gflop.items()},
        "gigaflop_per_second_of_a_product": round(rate, 1),
        "share_of_roofline": round(sum(gflop.values()) / rate / seconds["ours"], 3),
    }


def gigaflop(model: Any, tokens: int, trained: int, pairs: int) -> dict[str, float]:
    """Return the billions of floating-point operations in a train step's matrix products, forward and backward, by
    part."""
    layers = sum(weight.numel() for weight in model.model.layers.parameters() if weight.ndim == 2)
    config = model.config
    of_heads = config.num_hidden_layers * config.num_attention_heads * config.head_dim
    return {
        "layers": 6e-9 * tokens * layers,
        "head": 6e-9 * trained * model.lm_head.weight.numel(),
        "attention": 14e-9 * pairs * of_heads,  # two products forward, five backward; one recomputes
    }


def gigaflop_per_second(model: Any, compute_dtype: str) -> float:
    """Return the speed of one product with a matrix of the model's MLP on one thread."""
    import torch

    from benchmarks.machine_limits import flop_per_second

    torch.set_num_threads(1)
    config = model.config
    return 1e-9 * flop_per_second(
        config.hidden_size, config.intermediate_size, getattr(torch, compute_dtype), processor_seconds
    )


if __name__ == "__main__":
    main()
