"""Quartet's trainer: with shared prefixes computed once, and with every branch computed apart.

A turn starts from the rollouts' records. So it includes packing, advantages, loss, gradient and optimizer.
"""

from dataclasses import replace
from typing import Any

from benchmarks.trainer_contenders.base import (
    CLIP_HIGH,
    CLIP_LOW,
    LEARNING_RATE,
    MAX_GRAD_NORM,
    Turns,
    Work,
    new_model,
)
from benchmarks.trainer_contenders.batches import prepared
from quartet.config import Recipe
from quartet.on_progress import no_progress
from quartet.recipe.file import parse_recipe
from quartet.train.step import Learner
from quartet.types import Batch

RECIPE: dict[str, Any] = {
    "name": "trainer",
    "model": {"path": "none"},
    "env": {"name": "bandit"},
    "loss": {"terms": [{"name": "ppo_clip", "clip_low": CLIP_LOW, "clip_high": CLIP_HIGH}]},
    "train": {
        "learning_rate": LEARNING_RATE,
        "max_grad_norm": MAX_GRAD_NORM,
        "warmup_steps": 0,
    },
}


def train(turns: Turns, batch: Batch, work: Work, *, apart: bool) -> None:
    recipe = recipe_of(work.microbatch_tokens, compute_dtype=work.compute_dtype)
    learner, number = Learner(new_model(work.policy), recipe), 0
    while True:
        turns.begin()
        number += 1
        branches = prepared(batch)
        if apart:
            # Only branches with equal prompts share anything, and no two branches are equal.
            branches = [replace(branch, prompt_tokens=branch.num_tokens) for branch in branches]
        learner.update(learner.plan(branches, number, no_progress), no_progress)
        turns.end()


def recipe_of(microbatch_tokens: int, **train: Any) -> Recipe:
    """Return the recipe; `train` has further settings of its section."""
    section = RECIPE["train"] | {"max_tokens_per_microbatch": microbatch_tokens} | train
    return parse_recipe(RECIPE | {"train": section}, "benchmarks.trainer")
