"""How long do a publish and a checkpoint keep the trainer of a model with 135 million parameters from training?

One train step on two groups of `benchmarks.trainer` that share their prompts, then what follows it before the next one
may start: the policy's weights and the optimizer's state are copied. Threads write both copies beside the next step,
the policy with its canary. The processor time of each is measured, so other load hardly matters; waits for the disk do
not count.
"""

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
import torch

from benchmarks.trainer_contenders.batches import prepared, shared_prompt
from quartet.on_progress import no_progress
from quartet.policy.model import make_model
from quartet.policy.tokenizer import train_tokenizer
from quartet.recipe.file import parse_recipe
from quartet.train.checkpoint.files import take_snapshot, write_checkpoint
from quartet.train.checkpoint.writer import default_interval
from quartet.train.policy_writer import copy_to_publish
from quartet.train.publish import publish_policy, published_dtype
from quartet.train.step import Learner

ROLLOUTS = 16
"""Two groups of eight."""
VOCABULARY = 49_152
"""Vocabulary of the 135M model of SmolLM2, whose shape the model has."""
SHAPE = {"hidden_size": 576, "num_layers": 30, "num_heads": 9, "num_kv_heads": 3, "intermediate_size": 1536}


@click.command()
@click.option("--dtype", default="bfloat16", show_default=True, type=click.Choice(["float32", "bfloat16"]))
@click.option("--json", "as_json", is_flag=True)
def main(dtype: str, as_json: bool) -> None:
    """Measure one train step, one publish and one checkpoint, on one thread."""
    torch.set_num_threads(1)
    result = measure(dtype)
    for key, value in result.items():
        click.echo(f"{key:28} {value}")
    if as_json:
        click.echo(json.dumps(result))


def measure(dtype: str) -> dict[str, float]:
    """Return processor seconds, and shares of those of a train step: for which the main thread is `blocked`, and that
    threads use `beside` it."""
    learner, branches = _learner(dtype), prepared(shared_prompt(ROLLOUTS))
    update = _seconds(lambda: learner.update(learner.plan(branches, 1, no_progress), no_progress))
    published = copy_to_publish(learner.model, learner.recipe)
    copy_weights = _seconds(lambda: learner.give_weights(published))
    snapshot = take_snapshot(learner, 1)
    copy_state = _seconds(lambda: take_snapshot(learner, 2))
    with tempfile.TemporaryDirectory() as root:
        policy, checkpoint = Path(root) / "policy", Path(root) / "checkpoint"
        publish = _seconds(
            lambda: publish_policy(
                published, train_tokenizer([], 1024), policy, branches, dtype=published_dtype(learner.recipe)
            )
        )
        write = _seconds(lambda: write_checkpoint(checkpoint, snapshot))
    every = default_interval(sum(tensor.nbytes for tensor in snapshot.tensors.values()))
    blocked = copy_weights + copy_state / every
    return {
        "parameters_millions": round(sum(one.numel() for one in learner.model.parameters()) / 1e6, 1),
        "sequence_tokens": sum(branch.num_tokens for branch in branches),
        "update_seconds": round(update, 2),
        "copy_weights_seconds": round(copy_weights, 2),
        "copy_state_seconds": round(copy_state, 2),
        "write_policy_seconds": round(publish, 2),
        "write_checkpoint_seconds": round(write, 2),
        "train_steps_per_checkpoint": every,
        "blocked_share": round(blocked / (update + blocked), 4),
        "beside_share": round((publish + write / every) / (update + blocked), 4),
    }


def _learner(dtype: str) -> Learner:
    data = {
        "name": "publishing",
        "model": {"path": "none"},
        "env": {"name": "bandit"},
        "train": {"groups_per_batch": 2, "publish_dtype": dtype},
    }
    return Learner(make_model(VOCABULARY, **SHAPE), parse_recipe(data, "benchmarks.publishing"))


def _seconds(work: Callable[[], object]) -> float:
    started = time.thread_time()
    work()
    return time.thread_time() - started


if __name__ == "__main__":
    main()
