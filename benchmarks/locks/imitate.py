"""Supervised imitation of the expert's recorded presses, as a control for learning from the same recordings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from transformers import PreTrainedTokenizerBase

from benchmarks.locks.measure import Measure, solution_turns
from benchmarks.locks.offline import TRAINING_ROWS
from benchmarks.locks.run import Result, loop_of, run
from quartet.config import Recipe
from quartet.env import suite_families
from quartet.policy.examples import Example, batches
from quartet.policy.load import load_policy, save_policy
from quartet.policy.renderer import Renderer
from quartet.rollout.loop.base import AgentLoop
from quartet.train.sft import DEMONSTRATIONS, Lesson, SftTrainer
from quartet.types import Task

TOKENS_PER_PRESS = 2


def imitate(recipe: Recipe, folder: Path, budget_tokens: int) -> Result:
    """Train on the right presses until `budget_tokens` of them were imitated, then evaluate.

    The result has the imitated tokens in place of generated ones, and no counts of training.
    """
    model, tokenizer, _ = load_policy(recipe.model.path)
    families, loop = suite_families(recipe.env), loop_of(recipe)
    measure = Measure(families, recipe.evaluation.first_seed, tokenizer, loop)
    lessons = _lessons(_presses(families, tokenizer, loop), tokenizer, recipe, budget_tokens)
    curve, imitated = [(0, measure(model))], 0
    paced = with_settings(recipe, sft={"steps": len(lessons)})
    for (_, batch), _ in zip(lessons, SftTrainer(model, paced).run(iter(lessons)), strict=True):
        imitated += TOKENS_PER_PRESS * len(batch.ids_BT)
        curve.append((min(imitated, budget_tokens), measure(model)))
    save_policy(model.eval(), tokenizer, folder / "imitated")
    evaluated = run(with_settings(recipe, model={"path": str(folder / "imitated")}), folder / "run", 0)
    return replace(evaluated, curve=curve, tokens=budget_tokens, groups=0, trained_groups=0, turns=0)


def with_settings(recipe: Recipe, **sections: Mapping[str, Any]) -> Recipe:
    """Return the recipe with other settings in some sections."""
    changed = {name: getattr(recipe, name).model_copy(update=settings) for name, settings in sections.items()}
    return recipe.model_copy(update=changed)


def _presses(families: Sequence[str], tokenizer: PreTrainedTokenizerBase, loop: AgentLoop) -> list[Example]:
    tasks = [Task(env="locks", family=family, seed=seed) for family in families for seed in range(TRAINING_ROWS)]
    renderer = Renderer(tokenizer)
    return [press for task in tasks for press in solution_turns(task, renderer, loop)]


def _lessons(
    presses: list[Example], tokenizer: PreTrainedTokenizerBase, recipe: Recipe, budget_tokens: int
) -> list[Lesson]:
    """Return the batches that have `budget_tokens` tokens of presses together, up to one batch more."""
    pad_id = tokenizer.pad_token_id if isinstance(tokenizer.pad_token_id, int) else 0
    drawn = batches(presses, recipe.sft.tokens_per_batch, pad_id, np.random.default_rng(recipe.seed))
    lessons, tokens = list[Lesson](), 0
    while tokens < budget_tokens:
        lessons.append((DEMONSTRATIONS, next(drawn)))
        tokens += TOKENS_PER_PRESS * len(lessons[-1][1].ids_BT)
    return lessons
