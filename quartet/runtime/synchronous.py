"""The synchronous runtime: one process, one thread, all phases in sequence. Runs with the same seed are bit-identical.

The runtime uses the same data manager, worker, engine and trainer as the runtime with processes, one after another.
Rollouts run one at a time, because the numerical results for a request may depend on the other requests in its batch.
"""

import asyncio
import time
from contextlib import ExitStack, closing
from pathlib import Path

import torch

from quartet.config import Recipe
from quartet.engine.torch_engine import open_torch
from quartet.env import make_pool
from quartet.env.guarded import GuardedPool
from quartet.exchange.demonstrations import settle
from quartet.files.disk import full_disk
from quartet.ledger import Ledger
from quartet.manager.manager import DataManager
from quartet.report.evaluated import after_tag
from quartet.rollout.client import Model
from quartet.rollout.worker import RolloutWorker, make_renderer
from quartet.run.run_dir import RunLock
from quartet.runtime.evaluations import admit_missing_evaluations, first_evaluation
from quartet.runtime.interruption import interruptible
from quartet.runtime.repeated_error import raise_if_repeated
from quartet.runtime.session import open_or_create
from quartet.telemetry.presence import Presence
from quartet.telemetry.record import Recorder
from quartet.train.starvation import reason_without_batch
from quartet.train.trainer import Trainer
from quartet.types import Policy
from quartet.types.phase import ENDED, EVALUATING, STARTING, TRAINING


def train_synchronously(recipe: Recipe, run_dir: Path) -> None:
    """Evaluate, train and evaluate in this process. Training stops if no batch is trainable for too long.

    Raises `InterruptedByUser` after SIGINT and SIGTERM.
    """
    torch.set_num_threads(recipe.engine.threads)
    with RunLock(run_dir):
        asyncio.run(interruptible(_run(recipe, run_dir)))


async def _run(recipe: Recipe, run_dir: Path) -> None:
    with closing(open_or_create(recipe, run_dir)) as ledger:
        settle(recipe, ledger)
        ledger.trajectories.forget_errors()
        ledger.failing_tasks.forget()
        ledger.enter_phase(STARTING)
        modules = _Modules(recipe, run_dir, ledger)
        try:
            if recipe.evaluation.before_and_after:
                await modules.evaluate(first_evaluation(recipe, ledger))
            await modules.train()
            if recipe.evaluation.before_and_after:
                await modules.evaluate(after_tag(ledger))
            ledger.enter_phase(ENDED)
        finally:
            await modules.close()


class _Modules:
    """The four modules in one process."""

    def __init__(self, recipe: Recipe, run_dir: Path, ledger: Ledger) -> None:
        self._recipe, self._ledger = recipe, ledger
        self._recorders = {module: Recorder(run_dir, module) for module in ("manager", "worker", "trainer")}
        self._trainer = Trainer(recipe, ledger, run_dir, *self._observed("trainer"))
        policy = ledger.policies.latest()  # the newest undamaged one: the trainer has rolled back to it
        self._engine = open_torch(recipe, policy)
        self._pool = GuardedPool(make_pool(recipe.env))
        self._manager = DataManager(recipe, ledger, *self._observed("manager"))
        self._worker = RolloutWorker(
            recipe,
            ledger,
            {ledger.policy: Model(self._engine, make_renderer(recipe, ledger))},
            self._pool,
            *self._observed("worker"),
        )

    def _observed(self, module: str) -> tuple[Recorder, Presence]:
        recorder = self._recorders[module]
        return recorder, Presence(self._ledger.modules, module, recorder=recorder)

    async def evaluate(self, when: str) -> None:
        """Run the held-out episodes of `when`, one at a time, unless a full disk ends the run."""
        if full_disk(self._ledger.stop_reason()):
            return
        self._ledger.enter_phase(f"{EVALUATING}{when}")
        admit_missing_evaluations(self._recipe, self._ledger, when)
        while not full_disk(self._ledger.stop_reason()) and await self._run_queued():
            self._manager.tick()

    async def train(self) -> None:
        """Admit, roll out, train and load the new weights, until a stop is requested."""
        self._ledger.enter_phase(TRAINING)
        version = self._ledger.policies.latest().version
        self._ledger.policies.mark_settled(version, serving=version)
        last_trained = time.monotonic()
        while not self._ledger.stop_reason():
            self._manager.tick()
            await self._run_queued()
            self._manager.tick()
            if self._trainer.train_one():
                last_trained = time.monotonic()
                policy = self._ledger.policies.latest()
                await self._load(policy)
                self._ledger.policies.mark_settled(policy.version, serving=policy.version)
            elif time.monotonic() - last_trained > self._recipe.train.starved_timeout_seconds:
                limit = self._recipe.train.starved_timeout_seconds
                waited_for = f"no batch for {limit:g} s (train.starved_timeout_seconds)"
                self._ledger.request_stop(reason_without_batch(self._ledger, waited_for))
        self._trainer.finish()
        self._manager.tick()  # the training clock ends with the request to stop

    async def _load(self, policy: Policy) -> None:
        """Load a policy into the engine. If the run is stopped meanwhile, wait for the end of the loading first: a
        thread that still uses torch at the process's end aborts it."""
        loading = asyncio.create_task(self._engine.load_policy(policy.path, policy.version))
        try:
            await asyncio.shield(loading)
        finally:
            await asyncio.wait({loading})

    async def _run_queued(self) -> int:
        """Run the queued rollouts and return their number. Raises `RepeatedErrorError`."""
        return await self._worker.run_queued(after_each=lambda: raise_if_repeated(self._recipe, self._ledger))

    async def close(self) -> None:
        with ExitStack() as recorders:
            for recorder in self._recorders.values():
                recorders.callback(recorder.close)
            recorders.callback(self._trainer.checkpoints.close)  # an error may have left a write that is not finished
            await self._pool.close()
            await self._engine.close()
