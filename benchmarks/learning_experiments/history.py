"""Does a policy that must remember pictures learn as much with pictures removed in intervals as with a sliding window?

Every turn asks for the colour that was shown four turns before. Both histories always show the five newest pictures, so
both show the answer, but `interval` continues a branch in most turns, and `sliding` begins one in every turn. All runs
start from the same policy, which has imitated right answers for a short time, in both forms of prompts. A turn's credit
is its own reward compared with the group's, since no answer changes later turns.
"""

import asyncio
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from benchmarks.in_memory import folder_in_memory
from benchmarks.learning_experiments.base import Claim, Experiment, Figure, Measured, Settings
from benchmarks.learning_experiments.colours import (
    QUESTION,
    RGB,
    Memory,
    generated_tokens,
    mean_reward,
)
from quartet.config import Recipe
from quartet.policy.make_vision import make_vision_policy
from quartet.recipe.file import parse_recipe
from quartet.rollout.loop.base import loop_of

SLIDING, INTERVAL = "sliding", "interval"
TURNS = 20
GROUPS, ROLLOUTS_PER_GROUP = 2, 8
LESSONS = 60
"""Train steps of imitation, in turn with the two histories."""
TAUGHT_SEEDS = 2_000_000
"""First seed of the imitated tasks."""
EVALUATION_SEEDS = range(1_000_000, 1_000_024)
FEWER = 3.8
"""Bound of the claim about training tokens: how many times fewer."""
SUPERVISED = (
    "loss.terms=[{name = 'nll', uses = ['fresh']}]",
    "train.learning_rate=3e-3",
)


class Main(Experiment):
    """Right answers to further tasks at the end, and training tokens per rollout."""

    arms: ClassVar = {
        SLIDING: ["rollout.history={name = 'sliding', pictures = 5}"],
        INTERVAL: ["rollout.history={name = 'interval', min = 5, every = 10}"],
    }
    common: ClassVar = ["rollout.loop=screens", "train.learning_rate=3e-3"]
    figures: ClassVar = {
        "end": Figure("right answers at the end, %", 1, 100),
        "start": Figure("right answers at the start, %", 1, 100),
        "tokens": Figure("training tokens per rollout"),
        "log_tokens": Figure("their natural logarithm", 2),
    }
    claims = (
        Claim(text="at most 5 points fewer right answers", arm=INTERVAL, against=SLIDING, figure="end", above=-0.05),
        Claim(
            text=f"at least {FEWER} x fewer training tokens: logarithm lower by ln {FEWER} = {math.log(FEWER):.2f}",
            arm=INTERVAL,
            against=SLIDING,
            figure="log_tokens",
            below=-math.log(FEWER),
        ),
    )
    budget_tokens = 12_800

    def run(self, settings: Settings, seed: int) -> Measured:
        return asyncio.run(self._run(settings, seed))

    async def _run(self, settings: Settings, seed: int) -> Measured:
        with folder_in_memory() as folder:
            start = await asyncio.to_thread(_start)
            memory = Memory(start, recipe_of([*settings, f"seed={seed}"]), TURNS, folder)
            before = mean_reward(await memory.play(EVALUATION_SEEDS, 1))
            tokens, tasks = 0, 0
            while tokens < self.budget_tokens:
                first = seed * 1000 + tasks
                groups = await memory.play(range(first, first + GROUPS), ROLLOUTS_PER_GROUP)
                await memory.train(groups)
                tokens, tasks = tokens + generated_tokens(groups), tasks + GROUPS
            after = mean_reward(await memory.play(EVALUATION_SEEDS, 1))
            await memory.close()
        trained = memory.trained_tokens / (tasks * ROLLOUTS_PER_GROUP)
        figures = {"end": after, "start": before, "tokens": trained, "log_tokens": math.log(trained)}
        return Measured(figures=figures, tokens=tokens)


@cache
def _kept() -> TemporaryDirectory[str]:
    """Folder of the initial policy, which is removed at the end of the process."""
    return TemporaryDirectory()


@cache
def _start() -> Path:
    """Return the initial policy of all runs, which is made once per process. The result is deterministic."""
    folder = Path(_kept().name)
    make_vision_policy([QUESTION, *RGB] * 2, folder / "new", hidden_size=32, max_pixels=2**10)
    asyncio.run(_teach(folder))
    return folder / "start"


async def _teach(folder: Path) -> None:
    recipes = [recipe_of([*Main.settings(arm), *SUPERVISED]) for arm in Main.arms]
    memory = Memory(folder / "new", recipes[0], TURNS, folder)
    for lesson in range(LESSONS):
        memory.loop = loop_of(recipes[lesson % len(recipes)])
        first = TAUGHT_SEEDS + lesson * ROLLOUTS_PER_GROUP
        await memory.train(await memory.play(range(first, first + ROLLOUTS_PER_GROUP), 1, taught=True))
    memory.save(folder / "start")
    await memory.close()


def recipe_of(settings: Sequence[str]) -> Recipe:
    """Return the recipe of a run, with settings as values of `--set`."""
    data: dict[str, Any] = {
        "name": "colours",
        "model": {"path": "colours"},
        "env": {"name": "bandit"},
        "rollout": {"max_tokens": 2},
        "engine": {"max_slots": 32, "max_context_tokens": 1024},
        "admission": {"max_lag": 0},
        "filters": [],
        "credit": {"name": "mars", "discount": 0.0},
        "train": {"max_tokens_per_microbatch": 8192, "groups_per_batch": GROUPS},
    }
    return parse_recipe(data, "benchmarks/learning_experiments/history.py", list(settings))
