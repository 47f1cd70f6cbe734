"""One run: the real modules in one process, which roll out and train in turn until a budget of tokens is spent."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa
import torch
from msgspec import Struct
from transformers import PreTrainedModel

from benchmarks.locks.demonstrations import demonstrate
from benchmarks.locks.measure import Measure
from quartet.config import Recipe
from quartet.engine.torch_engine import open_torch
from quartet.env import make_environment, make_pool, suite_families
from quartet.env.environment.locks import LOCKS
from quartet.ledger import Ledger
from quartet.ledger.results import Results, success_rate
from quartet.ledger.schema import TrajectoryKind, rollouts, trajectories
from quartet.manager.evaluation import admit_evaluation
from quartet.manager.manager import DataManager
from quartet.policy.renderer import Renderer
from quartet.policy.tokenizer_files import load_tokenizer
from quartet.report.totals import run_totals
from quartet.rollout.client import Model
from quartet.rollout.loop.base import loop_of
from quartet.rollout.worker import RolloutWorker
from quartet.telemetry.presence import Presence
from quartet.telemetry.record import Recorder
from quartet.train.trainer import Trainer
from quartet.types import GroupState, Purpose, RolloutLease

EPISODES_PER_FAMILY = 16
"""Episodes per family of the final evaluation."""
MEASURES = 12
"""Number of points of the success curve, besides the first and the last."""
AnyModules = TypeVar("AnyModules", bound="Modules")


class Result(Struct, frozen=True, kw_only=True):
    """Result of one run. Counts are of training only."""

    curve: list[tuple[int, dict[str, float]]]
    """Points of the success curve: generated tokens so far, and the probability of success at the first try, by
    difficulty."""
    success: dict[str, float]
    """Share of held-out episodes solved at the end, sampled at temperature 1, by difficulty."""
    tokens: int
    rollouts: int
    turns: int
    """Number of environment steps: turns without those that forked rollouts share with their parents."""
    groups: int
    trained_groups: int
    train_steps: int
    cpu_seconds: float
    """Processor seconds of the whole process, in all its threads."""


def run(recipe: Recipe, run_dir: Path, budget_tokens: int, *, demonstrations: bool = False) -> Result:
    """Train in `run_dir` until `budget_tokens` were generated, then evaluate.

    With `demonstrations` the success pool is filled first. Rollouts that exceed the budget are not trained on.
    """
    torch.set_num_threads(1)
    return asyncio.run(_run(recipe, run_dir, budget_tokens, demonstrations))


def evaluate(recipe: Recipe, run_dir: Path) -> dict[str, float]:
    """Return the share of held-out episodes that the recipe's policy solves, sampled at temperature 1, by
    difficulty."""
    torch.set_num_threads(1)
    return asyncio.run(_evaluate(recipe, run_dir))


async def _evaluate(recipe: Recipe, run_dir: Path) -> dict[str, float]:
    async with opened(Modules, recipe, run_dir) as (modules, _):
        return by_difficulty(await modules.evaluate())


@asynccontextmanager
async def opened(kind: type[AnyModules], recipe: Recipe, run_dir: Path) -> AsyncIterator[tuple[AnyModules, Ledger]]:
    """Yield the modules, of this class, and the ledger of a new run, and close them at the end."""
    ledger = Ledger.create(run_dir, seed=recipe.seed)
    ledger.policies.register_initial(recipe.model.path)
    modules = kind(recipe, run_dir, ledger)
    try:
        yield modules, ledger
    finally:
        await modules.close()
        ledger.close()


async def _run(recipe: Recipe, run_dir: Path, budget_tokens: int, demonstrations: bool) -> Result:
    started = time.process_time()
    async with opened(Modules, recipe, run_dir) as (modules, ledger):
        if demonstrations:
            await modules.fill_pool()
        curve = await modules.train(budget_tokens)
        ledger.groups.cancel_unfinished()  # rollouts that were admitted for a further phase
        success = by_difficulty(await modules.evaluate())
        totals = run_totals(ledger)
        return Result(
            curve=curve,
            success=success,
            tokens=curve[-1][0],
            rollouts=totals.train_rollouts,
            turns=totals.turns - borrowed_turns(ledger),
            groups=sum(totals.groups.values()) - totals.dropped_by_reason.get("training_ended", 0),
            trained_groups=totals.groups.get(GroupState.TRAINED, 0),
            train_steps=ledger.batches.train_step(),
            cpu_seconds=time.process_time() - started,
        )


def by_difficulty(results: Results) -> dict[str, float]:
    """Return the success rate on locks by difficulty, and of `all`."""
    groups = {"all": dict(results)}
    for family, result in results.items():
        groups.setdefault(LOCKS[family].difficulty, {})[family] = result
    return {difficulty: success_rate(of_families) or 0.0 for difficulty, of_families in groups.items()}


def borrowed_turns(ledger: Ledger) -> int:
    """Return the number of turns that stored training rollouts share with their parents. Every call is one turn."""
    final = (trajectories.c.kind == TrajectoryKind.FINAL, trajectories.c.purpose == Purpose.TRAIN)
    shared = sa.func.coalesce(sa.func.sum(rollouts.c.parent_call + 1), 0)
    query = sa.select(shared).join(trajectories, trajectories.c.rollout_id == rollouts.c.id).where(*final)
    with ledger.read() as connection:
        return connection.execute(query).scalar_one()


class Modules:
    """The four modules. All rollouts of a phase run concurrently; no rollout runs while the trainer trains."""

    def __init__(self, recipe: Recipe, run_dir: Path, ledger: Ledger) -> None:
        self._recipe, self._ledger, self._recorder = recipe, ledger, Recorder(run_dir, "benchmark")
        self._tokenizer = load_tokenizer(Path(recipe.model.path))
        self._engine = open_torch(recipe, ledger.policies.latest())
        self._pool = make_pool(recipe.env)
        self._manager = DataManager(recipe, ledger, self._recorder, Presence(ledger.modules, "manager"))
        models = {ledger.policy: Model(self._engine, Renderer(self._tokenizer))}
        presence = Presence(ledger.modules, "worker")
        self._worker = RolloutWorker(recipe, ledger, models, self._pool, self._recorder, presence)
        self._trainer = Trainer(recipe, ledger, run_dir, self._recorder, Presence(ledger.modules, "trainer"))
        self._measure = self.measure()

    def measure(self) -> Callable[[PreTrainedModel], dict[str, float]]:
        """Return the function of a policy that gives a point of the success curve."""
        families, loop = suite_families(self._recipe.env), loop_of(self._recipe)
        return Measure(families, self._recipe.evaluation.first_seed, self._tokenizer, loop)

    async def fill_pool(self) -> None:
        """Store the expert's successes in the success pool."""
        shown = await demonstrate(self._recipe, self._ledger, self._tokenizer, self._recorder)
        keep = self._recipe.replay.entries_per_task
        self._ledger.pool.store_demonstrations([member.trajectory for member in shown], keep)

    async def train(self, budget_tokens: int) -> list[tuple[int, dict[str, float]]]:
        """Train until the budget is spent, and return the success curve, whose last point is at the budget."""
        curve = [(0, self._measure(self._trainer.model))]
        while True:
            self._manager.tick()
            await self._roll_out()
            self._manager.tick()
            tokens = self._engine.counters.generated_tokens
            if tokens >= budget_tokens:
                return [*curve, (budget_tokens, self._measure(self._trainer.model))]
            while self._trainer.train_one():
                pass
            policy = self._ledger.policies.latest()
            await self._engine.load_policy(policy.path, policy.version)
            if tokens - curve[-1][0] >= budget_tokens / MEASURES:
                curve.append((tokens, self._measure(self._trainer.model)))

    async def evaluate(self) -> Results:
        """Run held-out episodes of every family at the training temperature; return the results by family."""
        names, first_seed = make_environment(self._recipe.env).families(), self._recipe.evaluation.first_seed
        self._ledger.enter_phase("evaluating")
        admit_evaluation(
            self._ledger,
            self._recipe,
            names,
            seeds=range(first_seed, first_seed + EPISODES_PER_FAMILY),
            temperature=self._recipe.rollout.temperature,
            tag="end",
        )
        await self._roll_out()
        return self._ledger.evaluations.results("end")

    async def close(self) -> None:
        await self._pool.close()
        await self._engine.close()
        self._recorder.close()

    async def _roll_out(self) -> None:
        """Run all queued rollouts, as many at once as there are sessions; then their forks."""
        while leases := self._ledger.rollouts.claim("benchmark", 1_000_000, self._recipe.rollout.lease_seconds):
            async with asyncio.TaskGroup() as group:
                for lease in leases:
                    group.create_task(self._roll_out_one(lease))

    async def _roll_out_one(self, lease: RolloutLease) -> None:
        await self._worker.run_rollout(lease, await self._pool.acquire())
