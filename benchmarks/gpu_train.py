"""How many tokens per second does a train step process on a GPU, at which model FLOP utilisation (MFU)?

    python -m benchmarks.gpu_train --json

An untrained Qwen3, made on the device, is trained in bfloat16 with weights, gradients and moments in float32. A train
step is one minibatch of several microbatches: packing, forward and backward passes, loss, clipping, AdamW. Groups of 8
rollouts share a prompt and have long responses, of which all tokens are trained.

Model FLOP utilisation counts the operations of the matrix products that the model needs: 6 per weight and token (the
output matrix at trained tokens only), and 12 per pair of a token and a token that it attends to, and dimension of the
heads. What is computed again is not counted. The peak is that of the data sheet.
"""

import json
import statistics
import time
from typing import Any

import click
import numpy as np
import torch

from benchmarks.gpu import SIZES, data_sheet, untrained_qwen3
from benchmarks.trainer_contenders.batches import batch_of, prepared, random_ids, single_turn
from quartet.on_progress import no_progress
from quartet.recipe.file import parse_recipe
from quartet.train.packing.branches import Branch
from quartet.train.step import Learner


def long_branches(rollouts: int, prompt_tokens: int, tokens: int) -> list[Branch]:
    """Return groups of 8 rollouts of one turn; each has between three quarters of `tokens` tokens and `tokens`."""
    random, groups = np.random.default_rng(0), []
    for _ in range(rollouts // 8):
        prompt = random_ids(random, prompt_tokens)
        lengths = random.integers(tokens * 3 // 4, tokens + 1, 8) - prompt_tokens
        groups.append([single_turn(random, prompt, int(length)) for length in lengths])
    return prepared(batch_of(groups))


def new_learner(size: str, microbatch_tokens: int, tokens: int, *, checkpointing: bool) -> Learner:
    """Return the learner of an untrained model in bfloat16, for rollouts of at most `tokens` tokens."""
    recipe = {
        "name": "gpu_train",
        "model": {"path": "none"},
        "env": {"name": "bandit"},
        "loss": {"terms": ["ppo_clip"]},
        "engine": {"max_context_tokens": tokens},
        "train": {
            "device": "cuda",
            "compute_dtype": "bfloat16",
            "learning_rate": 1e-6,
            "max_tokens_per_microbatch": microbatch_tokens,
            "activation_checkpointing": checkpointing,
        },
    }
    return Learner(untrained_qwen3(size, torch.float32, tokens), parse_recipe(recipe, "benchmarks.gpu_train"))


def needed_flop(model: Any, batch: list[Branch]) -> float:
    """Return the floating-point operations in the matrix products of a train step; a group's prompt counts once."""
    config, prompts = model.config, {branch.group_index: branch.prompt_tokens for branch in batch}
    distinct = sum(branch.num_tokens - branch.prompt_tokens for branch in batch) + sum(prompts.values())
    pairs = sum(_pairs(branch.num_tokens) - _pairs(branch.prompt_tokens) for branch in batch)
    pairs += sum(map(_pairs, prompts.values()))
    trained = sum(branch.num_trained_tokens for branch in batch)
    layers = sum(weight.numel() for weight in model.model.layers.parameters() if weight.ndim == 2)
    of_heads = config.num_hidden_layers * config.num_attention_heads * config.head_dim
    head = trained * model.lm_head.weight.numel()
    return 6 * (distinct * layers + head) + 12 * pairs * of_heads


def _pairs(tokens: int) -> int:
    """Return the number of pairs of a token and a token that it attends to."""
    return tokens * (tokens + 1) // 2


def timed_steps(trained: Learner, batch: list[Branch], repetitions: int) -> list[float]:
    """Return the seconds of each train step after two that compile and warm up."""
    seconds = []
    for number in range(repetitions + 2):
        torch.cuda.synchronize()
        started = time.perf_counter()
        trained.update(trained.plan(batch, number + 1, no_progress), no_progress)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
        click.echo(f"step {number}: {seconds[-1]:.3f} s", err=True)
    return seconds[2:]


@click.command()
@click.option("--size", type=click.Choice(list(SIZES)), default="1.5B", show_default=True)
@click.option("--rollouts", default=16, show_default=True, help="Rollouts of a batch, a multiple of 8.")
@click.option("--prompt-tokens", default=512, show_default=True)
@click.option("--tokens", default=4096, show_default=True, help="Tokens of the longest rollout.")
@click.option("--microbatch-tokens", default=16_384, show_default=True)
@click.option("--checkpointing", is_flag=True, help="Compute activations again in the backward pass.")
@click.option("--repetitions", default=5, show_default=True)
@click.option("--profile", is_flag=True, help="Print the kernels of one more step.")
@click.option("--json", "as_json", is_flag=True)
def main(
    size: str,
    rollouts: int,
    prompt_tokens: int,
    tokens: int,
    microbatch_tokens: int,
    checkpointing: bool,
    repetitions: int,
    profile: bool,
    as_json: bool,
) -> None:
    """Measure train steps on a GPU."""
    name, sheet = data_sheet()
    batch = long_branches(rollouts, prompt_tokens, tokens)
    trained = new_learner(size, microbatch_tokens, tokens, checkpointing=checkpointing)
    seconds = timed_steps(trained, batch, repetitions)
    median, flop = statistics.median(seconds), needed_flop(trained.model, batch)
    distinct = sum(each.ids_BL.numel() for minibatch in trained.plan(batch, 1, no_progress) for each in minibatch)
    result = {
        "gpu": name,
        "parameters": sum(parameter.numel() for parameter in trained.model.parameters()),
        "tokens_per_step": distinct,
        "trained_tokens_per_step": sum(branch.num_trained_tokens for branch in batch),
        "seconds_per_step": round(median, 4),
        "spread_seconds": [round(min(seconds), 4), round(max(seconds), 4)],
        "tokens_per_second": round(distinct / median),
        "mfu": round(flop / median / sheet.flops_per_second, 3),
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 1),
    }
    if profile:
        profiled(trained, batch)
    click.echo(json.dumps(result) if as_json else json.dumps(result, indent=2))


def profiled(trained: Learner, batch: list[Branch]) -> None:
    """Print the kernels that take most of a train step."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        timed_steps(trained, batch, -1)
    click.echo(
        found.key_averages().table(sort_by="self_cuda_time_total", row_limit=25, max_name_column_width=60), err=True
    )


if __name__ == "__main__":
    main()
