"""One run on `lookups`, by reinforcement or by imitation: train on as many tokens, then ask held-out questions."""

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from msgspec import convert
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from benchmarks.learning_experiments.base import Measured
from benchmarks.locks.run import Modules, opened
from benchmarks.lookups.answers import Answers
from benchmarks.lookups.start import chat
from quartet.config import Recipe
from quartet.env.environment.lookups import page
from quartet.policy.chat import Chat
from quartet.policy.examples import TokenBatch, chat_example, pad, padding_id
from quartet.policy.load import load_policy
from quartet.policy.renderer import Renderer
from quartet.train.sft import DEMONSTRATIONS, SftTrainer
from quartet.types import Task

ANSWERS_PER_BATCH = 32
"""Number of imitated answers per train step, as many as plain GRPO has rollouts."""
Shares = Mapping[str, float]
"""Share of held-out questions with a right answer, by family."""


class LookupsModules(Modules):
    """The four modules. Their measure of success is the share of held-out questions with a right answer."""

    def measure(self) -> Callable[[PreTrainedModel], dict[str, float]]:
        return Answers(self._tokenizer, self._recipe.evaluation.first_seed)


def reinforce(recipe: Recipe, run_dir: Path, budget_tokens: int) -> Measured:
    """Train in `run_dir` until `budget_tokens` were generated."""
    torch.set_num_threads(1)
    return asyncio.run(_reinforce(recipe, run_dir, budget_tokens))


async def _reinforce(recipe: Recipe, run_dir: Path, budget_tokens: int) -> Measured:
    async with opened(LookupsModules, recipe, run_dir) as (modules, ledger):
        curve = await modules.train(budget_tokens)
        return _measured(curve[0][1], curve[-1][1], budget_tokens, ledger.batches.train_step())


def imitate(recipe: Recipe) -> Measured:
    """Imitate the expert's answers to training questions, drawn at random, for `sft.steps` steps."""
    torch.set_num_threads(1)
    model, tokenizer, _ = load_policy(recipe.model.path)
    answers, drawn = Answers(tokenizer, recipe.evaluation.first_seed), _batches(recipe, tokenizer)
    batches, before = [next(drawn) for _ in range(recipe.sft.steps)], answers(model)
    for _ in SftTrainer(model, recipe).run((DEMONSTRATIONS, batch) for batch in batches):
        pass
    tokens = sum(int(batch.learned_BT.sum()) for batch in batches)
    return _measured(before, answers(model.eval()), tokens, recipe.sft.steps)


def _batches(recipe: Recipe, tokenizer: PreTrainedTokenizerBase) -> Iterator[TokenBatch]:
    draw, renderer = random.Random(f"questions {recipe.seed}"), Renderer(tokenizer)
    (family,) = recipe.env.families
    while True:
        seeds = [draw.randrange(recipe.control.train_seeds_per_family) for _ in range(ANSWERS_PER_BATCH)]
        chats = [convert(chat(page(Task(env="lookups", family=family, seed=seed))), Chat) for seed in seeds]
        yield pad([chat_example(one, renderer) for one in chats], padding_id(tokenizer))


def _measured(before: Shares, after: Shares, tokens: int, train_steps: int) -> Measured:
    figures = {
        **after,
        "gain": after["zero_shot"] - before["zero_shot"],
        "gap": after["iid"] - after["zero_shot"],
        "train_steps": train_steps,
    }
    return Measured(figures=figures, tokens=tokens)
