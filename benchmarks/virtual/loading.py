"""Engines load new weights one after another or all at once, as the schedule allows."""

from collections.abc import Callable

from benchmarks.virtual.clock import VirtualClock
from benchmarks.virtual.engine import VirtualEngine
from benchmarks.virtual.fleet import Fleet
from benchmarks.virtual.scenario import Scenario
from quartet.ledger import Ledger
from quartet.manager.schedule import Schedule
from quartet.manager.straggler.base import StragglerRule


class Loading:
    """Loads of one policy's newest version; `loaded` is called after each."""

    def __init__(
        self,
        clock: VirtualClock,
        scenario: Scenario,
        ledger: Ledger,
        fleet: Fleet,
        rules: tuple[Schedule, StragglerRule],
        loaded: Callable[[], None],
    ) -> None:
        self._clock, self._scenario, self._ledger, self._fleet = clock, scenario, ledger, fleet
        self._schedule, self._stragglers = rules
        self._loaded, self._newest = loaded, 0

    def begin(self, version: int | None = None) -> None:
        """Begin as many loads as the schedule and `loads_at_once` allow. `version` is a newly committed one."""
        self._newest = version or self._newest
        behind = [
            engine
            for engine in self._fleet.engines
            if engine.versions[self._ledger.policy] < self._newest and engine.present and not engine.loading
        ]
        if not behind or not self._schedule.may_take_weights(self._ledger, self._stragglers):
            return
        loading = sum(engine.loading for engine in self._fleet.engines)
        free = len(behind) if self._scenario.loads_at_once is None else self._scenario.loads_at_once - loading
        for engine in behind[: max(free, 0)]:
            self._load(engine, self._newest)

    def catch_up(self, engine: VirtualEngine) -> None:
        """Load the newest version into an engine that has joined, whatever the schedule."""
        if engine.versions[self._ledger.policy] < self._newest:
            self._load(engine, self._newest)

    def _load(self, engine: VirtualEngine, version: int) -> None:
        def done() -> None:
            self._ledger.policies.mark_settled(version, serving=version, engine=engine.name)
            self.begin()
            self._loaded()

        own = self._fleet.groups[engine].load_seconds
        engine.load(version, self._scenario.load_seconds if own is None else own, done, self._ledger.policy)
