"""One run of a mode, with the processor time of its engines."""

import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from benchmarks.modes.figures import CpuSample, Figures, figures
from benchmarks.watched_run import train
from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.recipe.file import to_toml
from quartet.telemetry.records import read_records

SAMPLE_SECONDS = 0.2


def run(recipe: Recipe, folder: Path, *, train_steps: int) -> Figures:
    """Train in `folder` for `train_steps` steps and return their figures. Raises `SystemExit` if the run fails.

    The run takes some further steps that are not counted: near the end of a run no groups are started, so the last
    steps would have the machine alone.
    """
    watched = watch(recipe, folder, train_steps=train_steps)
    bias = watched.summary["selection_bias"]
    rollouts, steps = list(read_records(watched.run_dir, "rollout")), list(read_records(watched.run_dir, "train"))
    ratio = bias["trained"]["response_tokens_ratio"] if bias["trained"] else 0.0
    return figures(recipe, rollouts, steps, watched.cpu, ratio, train_steps=train_steps)


class Watched(NamedTuple):
    """A run that has ended, with what was seen of it."""

    run_dir: Path
    summary: dict[str, Any]
    cpu: list[CpuSample]


def watch(recipe: Recipe, folder: Path, *, train_steps: int) -> Watched:
    """Train in `folder` for `train_steps` steps and some further ones. Raises `SystemExit` if the run fails."""
    more = recipe.admission.max_lag + 1
    recipe = recipe.model_copy(
        update={"train": recipe.train.model_copy(update={"max_train_steps": train_steps + more})}
    )
    file, run_dir = folder / "recipe.toml", folder / "run"
    file.write_text(to_toml(recipe))
    cpu: list[CpuSample] = []
    summary = train(file, run_dir, look=lambda ledger: cpu.extend(_sample(ledger, recipe)), poll_seconds=SAMPLE_SECONDS)
    return Watched(run_dir, summary, cpu)


def _sample(ledger: Ledger, recipe: Recipe) -> list[CpuSample]:
    """Return a list of one sample of the engines' processor seconds; empty if an engine is not running."""
    pids = {row.module: row.pid for row in ledger.modules.all() if row.module in recipe.engine_modules}
    if len(pids) < len(recipe.engine_modules):
        return []
    try:
        used = sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids.values())
    except psutil.NoSuchProcess:
        return []
    return [CpuSample(time.time(), used)]
