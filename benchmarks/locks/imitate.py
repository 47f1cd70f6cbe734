"""Supervised imitation of the expert's recorded presses, as a control for learning from the same recordings."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerBase

from benchmarks.locks.measure import Measure, solution_turns
from benchmarks.locks.offline import TRAINING_ROWS
from benchmarks.locks.run import Result, evaluate
from quartet.config import Recipe
from quartet.env import suite_families
from quartet.policy.examples import Example, TokenBatch, pad, padding_id
from quartet.policy.load import load_policy
from quartet.policy.renderer import Renderer
from quartet.policy.save import save_policy
from quartet.rollout.loop.base import AgentLoop, loop_of
from quartet.train.sft import DEMONSTRATIONS, SftTrainer
from quartet.types import Task

PRESSES_PER_BATCH = 32
"""As many responses as a train step of plain GRPO has rollouts."""


def imitate(recipe: Recipe, folder: Path, budget_tokens: int) -> Result:
    """Take `sft.steps` optimizer steps on right presses, then evaluate.

    The result has the imitated tokens in place of generated ones; no rollouts are trained. Raise `ValueError` unless
    the steps have `budget_tokens` tokens of presses, up to one batch more.
    """
    started = time.process_time()
    model, tokenizer, _ = load_policy(recipe.model.path)
    families, loop = suite_families(recipe.env), loop_of(recipe)
    measure = Measure(families, recipe.evaluation.first_seed, tokenizer, loop)
    drawn = _batches(_presses(families, tokenizer, loop), padding_id(tokenizer), recipe.seed)
    batches = [next(drawn) for _ in range(recipe.sft.steps)]
    curve, tokens = [(0, measure(model))], 0
    steps = SftTrainer(model, recipe).run((DEMONSTRATIONS, batch) for batch in batches)
    for batch, _ in zip(batches, steps, strict=True):
        tokens += int(batch.learned_BT.sum())
        curve.append((min(tokens, budget_tokens), measure(model)))
    if not budget_tokens <= tokens <= budget_tokens + tokens / len(batches):
        raise ValueError(f"{recipe.sft.steps} steps imitate {tokens} tokens, not {budget_tokens}: change sft.steps")
    save_policy(model.eval(), tokenizer, folder / "imitated")
    imitated = recipe.model_copy(update={"model": recipe.model.model_copy(update={"path": str(folder / "imitated")})})
    return Result(
        curve=curve,
        success=evaluate(imitated, folder / "run"),
        tokens=budget_tokens,
        rollouts=0,
        turns=0,
        groups=0,
        trained_groups=0,
        train_steps=0,
        cpu_seconds=time.process_time() - started,
    )


def _presses(families: Sequence[str], tokenizer: PreTrainedTokenizerBase, loop: AgentLoop) -> list[Example]:
    tasks = [Task(env="locks", family=family, seed=seed) for family in families for seed in range(TRAINING_ROWS)]
    renderer = Renderer(tokenizer)
    return [press for task in tasks for press in solution_turns(task, renderer, loop)]


def _batches(presses: Sequence[Example], pad_id: int, seed: int) -> Iterator[TokenBatch]:
    """Yield batches of equally many presses without end, in an order that is random in every epoch."""
    draw, left = np.random.default_rng(seed), list[int]()
    while True:
        while len(left) < PRESSES_PER_BATCH:
            left += draw.permutation(len(presses)).tolist()
        yield pad([presses[index] for index in left[:PRESSES_PER_BATCH]], pad_id)
        left = left[PRESSES_PER_BATCH:]
