"""A run in virtual time: the real ledger and the real data manager; sessions, engines and trainer as distributions."""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct

from benchmarks.virtual.clock import VirtualClock
from benchmarks.virtual.fleet import Fleet
from benchmarks.virtual.loading import Loading
from benchmarks.virtual.scenario import Scenario
from benchmarks.virtual.services import Services
from benchmarks.virtual.sessions import Sessions
from benchmarks.virtual.trainer import VirtualTrainer
from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.manager.manager import DataManager
from quartet.manager.schedule import make_schedule
from quartet.manager.straggler.base import StragglerRule
from quartet.recipe.file import parse_recipe
from quartet.registry import build
from quartet.telemetry.presence import Presence
from quartet.telemetry.record import Recorder

POLL_SECONDS = 30.0
"""Virtual time between ticks without notifications, at which deadlines take effect."""
_PART = "bandit"
"""Environment of the recipe: the manager asks it only for the number of tasks, which is unlimited."""
_LEASE_SECONDS = 3600.0


class Totals(Struct, frozen=True, kw_only=True):
    """Counts and sums of seconds since the beginning."""

    seconds: float
    train_steps: int
    actions: int
    trained_actions: int
    trained_rollouts: int
    finished: int
    superseded: int
    occupied_seconds: float
    environment_seconds: float
    started_seconds: float
    engine_busy_seconds: float
    engine_compute_seconds: float
    engine_request_seconds: float
    generated_tokens: float
    trainer_seconds: float


class Simulation:
    """One scenario. `folder` holds the ledger; a folder in memory is faster."""

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.scenario, self.clock = scenario, VirtualClock()
        self.recipe = recipe_of(scenario)
        trained = [policy for policy in scenario.policies if policy not in scenario.frozen]
        self.ledger = Ledger.create(
            folder, seed=scenario.seed, clock=self.clock, trained=trained, frozen=scenario.frozen
        ).of(trained[0])
        for policy in scenario.policies:
            self.ledger.of(policy).policies.register_initial("policies/v000000")
        self.fleet = Fleet(self.clock, scenario)
        self.ledger.policies.expect_engines([engine.name for engine in self.fleet.engines])
        for engine in self.fleet.engines:
            for policy in scenario.policies:
                self.ledger.of(policy).policies.mark_settled(0, serving=0, engine=engine.name)
        self.ledger.enter_phase("training")
        self._stragglers: StragglerRule = build(self.recipe.straggler, self.recipe)
        self.sessions = Sessions(
            self.clock, scenario, self.recipe, self.ledger, self.fleet, self._stragglers, self._notify
        )
        quorum = self._stragglers.quorum(self.recipe.control.rollouts_per_group)
        self._cancels = quorum.enough < quorum.queued
        rules = make_schedule(self.recipe.admission.schedule), self._stragglers
        self.trainers: list[VirtualTrainer] = []
        self._loadings: list[Loading] = []
        for mine in self.ledger.each():
            loading = Loading(self.clock, scenario, mine, self.fleet, rules, self._notify)
            self._loadings.append(loading)
            self.trainers.append(VirtualTrainer(self.clock, scenario, self.recipe, mine, self._committed(loading)))
        self._services = Services(self.clock, self.ledger, self.fleet, self.sessions, self._loadings, self._notify)
        self._recorder = Recorder(folder, "manager", clock=self.clock)
        presence = Presence(self.ledger.modules, "manager", recorder=self._recorder)
        self._manager = DataManager(self.recipe, self.ledger, self._recorder, presence, families=list(scenario.kinds))
        self._tick_due = False
        self.tick_seconds: list[float] = []
        """Processor seconds of each round of the data manager until nothing changes."""

    def run(self, done: Callable[[], bool], max_virtual_seconds: float = 1e7) -> Totals:
        """Simulate until `done`, and return the totals. Raises `RuntimeError` after `max_virtual_seconds`."""
        if not self.clock.pending:
            self._notify()
            self.clock.after(POLL_SECONDS, self._poll)
            self._services.begin(self.scenario)
        self.clock.run(lambda: done() or self.clock.now > max_virtual_seconds)
        if self.clock.now > max_virtual_seconds:
            raise RuntimeError(f"not done after {max_virtual_seconds:.0f} s of virtual time: {self.totals()}")
        return self.totals()

    def totals(self) -> Totals:
        """Return the totals so far."""
        self.sessions.count_time()
        for engine in self.fleet.engines:
            engine.count_time()
        return Totals(
            seconds=self.clock.now,
            train_steps=self.train_steps,
            actions=self.sessions.actions,
            trained_actions=sum(trainer.actions for trainer in self.trainers),
            trained_rollouts=sum(trainer.rollouts for trainer in self.trainers),
            finished=self.sessions.finished,
            superseded=self.sessions.superseded,
            occupied_seconds=self.sessions.occupied_seconds,
            environment_seconds=self.sessions.environment_seconds,
            started_seconds=self.sessions.started_seconds,
            engine_busy_seconds=sum(engine.busy_seconds for engine in self.fleet.engines),
            engine_compute_seconds=sum(engine.compute_seconds for engine in self.fleet.engines),
            engine_request_seconds=sum(engine.request_seconds for engine in self.fleet.engines),
            generated_tokens=sum(engine.tokens for engine in self.fleet.engines),
            trainer_seconds=sum(trainer.busy_seconds for trainer in self.trainers) / len(self.trainers),
        )

    @property
    def train_steps(self) -> int:
        """Number of train steps that every trained policy has reached."""
        return min(trainer.train_steps for trainer in self.trainers)

    @property
    def lags(self) -> list[int]:
        """Lags of all trained rollouts so far, by their oldest token."""
        return [lag for trainer in self.trainers for lag in trainer.lags]

    def close(self) -> None:
        """Close the ledger and the records."""
        self._recorder.close()
        self.ledger.close()

    def tick_milliseconds(self) -> float:
        """Return the median processor time of the data manager's rounds."""
        return 1e3 * median(self.tick_seconds)

    def _notify(self) -> None:
        if not self._tick_due:
            self._tick_due = True
            self.clock.after(self.scenario.tick_seconds, self._tick)

    def _poll(self) -> None:
        self._notify()
        self.clock.after(POLL_SECONDS, self._poll)

    def _tick(self) -> None:
        self._tick_due = False
        began = time.process_time()
        while self._manager.tick():
            pass
        self.tick_seconds.append(time.process_time() - began)
        if self._cancels:
            self.sessions.recall_cancelled()
        paused = self._stragglers.pauses_training(self.ledger)
        if paused:
            self.sessions.pause()
        for trainer in self.trainers:
            trainer.claim()
        for loading in self._loadings:
            loading.begin()
        if not paused:
            self.sessions.claim()

    def _committed(self, loading: Loading) -> Callable[[int], None]:
        def committed(version: int) -> None:
            loading.begin(version)
            self._notify()

        return committed


def recipe_of(scenario: Scenario) -> Recipe:
    """Return the recipe of a scenario: no filters and no limits of time unless it sets them."""
    data: dict[str, Any] = {
        "name": "scale",
        "seed": scenario.seed,
        "model": {"path": "unused"},
        "env": {"name": _PART, "sessions": scenario.sessions},
        "rollout": {
            "max_turns": max(kind.max_turns for kind in scenario.kinds.values()),
            "lease_seconds": _LEASE_SECONDS,
            "episode_timeout_seconds": 1e6,
        },
        "control": {"sampler": "uniform"},
        "admission": {"group_deadline_seconds": 1e6},
        "filters": [],
        "train": {"max_train_steps": 10**6},
        "evaluation": {"before_and_after": False},
        "disk": {"min_free_megabytes": 1},
    }
    if len(scenario.policies) > 1:
        data["policies"] = {policy: {"trained": policy not in scenario.frozen} for policy in scenario.policies}
    for section, settings in scenario.recipe.items():
        data[section] = data.get(section, {}) | settings if isinstance(settings, dict) else settings
    return parse_recipe(data, "benchmarks.virtual.simulation")
