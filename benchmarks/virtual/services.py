"""Services that leave the run and join it again: engines, with the sessions of their region."""

from collections.abc import Callable, Sequence

from benchmarks.virtual.clock import VirtualClock
from benchmarks.virtual.fleet import Fleet
from benchmarks.virtual.loading import Loading
from benchmarks.virtual.scenario import Away, Engines, Scenario
from benchmarks.virtual.sessions import Sessions
from quartet.ledger import Ledger


class Services:
    """Departures and returns by the schedules of the scenario. `notify` wakes the data manager after each."""

    def __init__(
        self,
        clock: VirtualClock,
        ledger: Ledger,
        fleet: Fleet,
        sessions: Sessions,
        loadings: Sequence[Loading],
        notify: Callable[[], None],
    ) -> None:
        self._clock, self._ledger, self._fleet = clock, ledger, fleet
        self._sessions, self._loadings, self._notify = sessions, loadings, notify

    def begin(self, scenario: Scenario) -> None:
        """Schedule the first departures."""
        for group in scenario.engines:
            if group.away is not None:
                self._leave_later(group, group.away)

    def _leave_later(self, group: Engines, away: Away) -> None:
        self._clock.after(away.period_seconds - away.away_seconds, lambda: self._leave(group, away))

    def _leave(self, group: Engines, away: Away) -> None:
        for engine in self._fleet.of(group):
            engine.leave()
        self._sessions.leave(group.sessions)
        self._clock.after(away.away_seconds, lambda: self._join(group, away))
        self._changed()

    def _join(self, group: Engines, away: Away) -> None:
        for engine in self._fleet.of(group):
            engine.present = True
            for loading in self._loadings:
                loading.catch_up(engine)
        self._sessions.away -= group.sessions
        self._leave_later(group, away)
        self._changed()

    def _changed(self) -> None:
        self._ledger.policies.expect_engines([engine.name for engine in self._fleet.engines if engine.present])
        self._notify()
