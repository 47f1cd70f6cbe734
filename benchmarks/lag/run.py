"""One run at the largest lag that its bound allows: the real modules in one process, with the queue always full.

In turn, all admitted groups are rolled out, and one batch is trained and its policy loaded. So a group waits until
`max_lag` earlier batches are trained, as with environments and engines that are much faster than the trainer. The
result does not depend on the speed of the machine.
"""

import asyncio
import time
from pathlib import Path

import torch
from msgspec import Struct

from benchmarks.locks.measure import ALL
from benchmarks.locks.run import Modules, opened
from quartet.config import Recipe
from quartet.report.staleness import lag_histogram


class Learned(Struct, frozen=True, kw_only=True):
    """Result of one run."""

    curve: list[float]
    """Success on held-out tasks after 0, 1, ... train steps: the exact probability of opening a lock at the first try,
    sampled at temperature 1."""
    lag_histogram: dict[int, int]
    """Lag -> trained trajectories."""
    cpu_seconds: float


class FullLineModules(Modules):
    """The four modules, with as many groups in progress before every train step as admission allows.

    The recipe drops no group, so that the queue gets full.
    """

    async def learn(self) -> list[float]:
        """Train `train.max_train_steps` steps, and return the curve of success."""
        curve = [self._success()]
        while self._ledger.batches.train_step() < self._recipe.train.max_train_steps:
            while self._manager.tick():
                await self._roll_out()
            self._trainer.train_one()
            policy = self._ledger.policies.latest()
            await self._engine.load_policy(policy.path, policy.version)
            curve.append(self._success())
        return curve

    def _success(self) -> float:
        return self._measure(self._trainer.model)[ALL]


def learn(recipe: Recipe, run_dir: Path) -> Learned:
    """Train in `run_dir` and return the result. Raises the errors of the modules."""
    torch.set_num_threads(1)
    return asyncio.run(_learn(recipe, run_dir))


async def _learn(recipe: Recipe, run_dir: Path) -> Learned:
    started = time.process_time()
    async with opened(FullLineModules, recipe, run_dir) as (modules, ledger):
        curve = await modules.learn()
        seconds = time.process_time() - started
        return Learned(curve=curve, lag_histogram=lag_histogram(ledger), cpu_seconds=seconds)
