"""A rollout worker on a real ledger, with everything around it."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

from scripted_engine import ScriptedEngine, make_tokenizer

from quartet.config import Recipe
from quartet.env import make_pool
from quartet.ledger import Ledger
from quartet.policy.renderer import Renderer
from quartet.recipe.file import parse_recipe
from quartet.rollout.client import Model
from quartet.rollout.worker import RolloutWorker
from quartet.telemetry.presence import Presence
from quartet.telemetry.record import Recorder
from quartet.types import MAIN, Purpose, RolloutPlan, Task

TOKENIZER = make_tokenizer()


class Bench:
    """A worker with everything around it, on a new run or on one that is there."""

    def __init__(self, folder: Path, script, *, engine=ScriptedEngine, pool=None, sections=None, **rollout) -> None:
        data = {
            "name": "bench",
            "model": {"path": "none"},
            "env": {"name": "bandit", "sessions": 3},
            "rollout": {"max_turns": 4, "max_attempts": 3, **rollout},
            **(sections or {}),
        }
        self.recipe: Recipe = parse_recipe(data, "test")
        self.now = 1000.0
        self.folder = folder / "run"
        if Ledger.exists(self.folder):
            self.ledger = Ledger.open(self.folder, clock=lambda: self.now)
        else:
            self.ledger = Ledger.create(self.folder, clock=lambda: self.now)
            self.ledger.policies.register_initial("none")
        self.recorder = Recorder(self.folder, "worker")
        self.engine = engine(TOKENIZER, script)
        self.pool = pool or make_pool(self.recipe.env)
        self.worker = RolloutWorker(
            self.recipe,
            self.ledger,
            {MAIN: Model(self.engine, Renderer(TOKENIZER))},
            self.pool,
            self.recorder,
            Presence(self.ledger.modules, "worker", interval_seconds=0.0),
        )

    def admit(
        self, rollouts: int = 1, family="fixed", seed=0, max_turns=4, enough=None, purpose=Purpose.TRAIN, **params
    ) -> int:
        task = Task(env="bandit", family=family, seed=seed, params=params)
        plan = RolloutPlan(task=task, num_rollouts=rollouts, max_turns=max_turns, enough=enough, purpose=purpose)
        return self.ledger.groups.admit(plan)

    def waits_for(self) -> tuple[str, str]:
        (row,) = self.ledger.modules.all()
        return row.state, row.waiting_for

    def kinds(self) -> list[str]:
        return [event.kind for event in self.ledger.events()]

    @asynccontextmanager
    async def running(self):
        stop = asyncio.Event()
        task = asyncio.create_task(self.worker.run(stop))
        try:
            yield
        finally:
            stop.set()
            await asyncio.wait_for(task, 60)
