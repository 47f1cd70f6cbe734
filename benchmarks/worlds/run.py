"""One run on `worlds`: train until the budget of tokens is spent, then evaluate."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import PreTrainedModel

from benchmarks.learning_experiments.base import Measured
from benchmarks.locks.run import Modules, opened
from quartet.config import Recipe
from quartet.env.environment.worlds import KINDS, LEVELS
from quartet.ledger.results import Results, success_rate
from quartet.report.totals import run_totals
from quartet.types import GroupState

GRADES = (*KINDS, *LEVELS)
"""Parts of a family's name; the success of each is a figure."""


class WorldsModules(Modules):
    """The four modules. They measure success only at the end: tasks of worlds have more than one solution."""

    def measure(self) -> Callable[[PreTrainedModel], dict[str, float]]:
        return lambda _: {}


def run(recipe: Recipe, run_dir: Path, budget_tokens: int) -> Measured:
    """Train in `run_dir` until `budget_tokens` were generated, then evaluate on held-out tasks at temperature 1."""
    torch.set_num_threads(1)
    return asyncio.run(_run(recipe, run_dir, budget_tokens))


async def _run(recipe: Recipe, run_dir: Path, budget_tokens: int) -> Measured:
    async with opened(WorldsModules, recipe, run_dir) as (modules, ledger):
        await modules.train(budget_tokens)
        ledger.groups.cancel_unfinished()  # rollouts that were admitted for a further phase
        totals = run_totals(ledger)
        results = await modules.evaluate()
        figures = {
            "end": success_rate(results) or 0.0,
            **{grade: _success(results, grade) for grade in GRADES},
            "trained_groups": totals.groups.get(GroupState.TRAINED, 0),
            "train_steps": ledger.batches.train_step(),
            "environment_steps": totals.turns,
        }
        return Measured(figures=figures, tokens=budget_tokens)


def _success(results: Results, grade: str) -> float:
    """Return the success rate of the families whose name has this part."""
    return success_rate(results, {family for family in results if grade in family.split("-")}) or 0.0
