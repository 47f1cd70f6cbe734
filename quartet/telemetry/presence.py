"""Presence of a module: heartbeats to the ledger with its current activity or wait, and what would end the wait."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from quartet.telemetry.activities import WAIT
from quartet.telemetry.process_usage import ProcessUsage
from quartet.telemetry.record import Recorder
from quartet.types.phase import STARTING

METRIC_SECONDS = 5.0
TRAINABLE_GROUPS = "trainable groups"
"""Text after the number of groups in the reported wait of a trainer without data. Other modules recognise starvation by
this text."""


class ReportSink(Protocol):
    """The method of the ledger that stores a module's presence, one row per module."""

    def report(
        self,
        module: str,
        *,
        state: str,
        waiting_for: str,
        ends_when: str,
        since: float,
        waiting_seconds: float,
        url: str,
        capacity: int = 0,
    ) -> None: ...


class Presence:
    """Heartbeat and state of one module. `beat` may be called often: it writes at most once in `interval_seconds`.

    With a recorder, waits are recorded as spans of the module, and their share of the time as a metric.
    """

    def __init__(
        self,
        sink: ReportSink,
        module: str,
        *,
        url: str = "",
        capacity: int = 0,
        interval_seconds: float = 1.0,
        recorder: Recorder | None = None,
    ) -> None:
        self._recorder, self._wait = recorder, None
        self._usage = ProcessUsage()
        self.module = module
        self._sink, self._url, self._capacity = sink, url, capacity
        self._interval_seconds = interval_seconds
        self._state, self._waiting_for, self._ends_when = STARTING, "", ""
        self._since, self._since_monotonic = time.time(), time.monotonic()
        self._next_write = 0.0
        self._measured_at, self._measured_waiting_seconds = self._since_monotonic, 0.0
        self.waiting_seconds = 0.0
        """Wall seconds that the module has waited since it started, without a wait in progress."""
        self.beat(force=True)

    def working(self, state: str) -> None:
        """Report that the module works; `state` names the activity."""
        self._change(state, "", "")

    def waits(self, waiting_for: str, ends_when: str) -> None:
        """Report that the module waits, until the next call of `working` or `waits`."""
        self._change("waiting", waiting_for, ends_when)

    @contextmanager
    def waiting(self, waiting_for: str, ends_when: str, *, then: str = "working") -> Iterator[None]:
        """Report a wait inside the block, then the activity `then`."""
        self.waits(waiting_for, ends_when)
        try:
            yield
        finally:
            self.working(then)

    def beat(self, *, force: bool = False) -> None:
        """Send a heartbeat to the ledger; call it from every loop."""
        now = time.monotonic()
        if not force and now < self._next_write:
            return
        self._next_write = now + self._interval_seconds
        pending = now - self._since_monotonic if self._waiting_for else 0.0
        self._measure(now, self.waiting_seconds + pending)
        self._sink.report(
            self.module,
            state=self._state,
            waiting_for=self._waiting_for,
            ends_when=self._ends_when,
            since=self._since,
            waiting_seconds=self.waiting_seconds + pending,
            url=self._url,
            capacity=self._capacity,
        )

    def _change(self, state: str, waiting_for: str, ends_when: str) -> None:
        if (state, waiting_for) != (self._state, self._waiting_for):
            now = time.monotonic()
            if self._waiting_for:
                self.waiting_seconds += now - self._since_monotonic
            self._since, self._since_monotonic = time.time(), now
            self._record_wait(waiting_for)
        self._state, self._waiting_for, self._ends_when = state, waiting_for, ends_when
        self.beat()

    def _record_wait(self, waiting_for: str) -> None:
        """End the span of the previous wait, and begin the span of the next wait, if any."""
        if self._wait:
            self._wait.end()
        self._wait = self._recorder.begin(WAIT, reason=waiting_for) if self._recorder and waiting_for else None

    def _measure(self, now: float, waiting_seconds: float) -> None:
        if self._recorder and now - self._measured_at >= METRIC_SECONDS:
            share = (waiting_seconds - self._measured_waiting_seconds) / (now - self._measured_at)
            self._recorder.metric("module", waiting_fraction=min(1.0, max(0.0, share)), **self._usage.since_last())
            self._measured_at, self._measured_waiting_seconds = now, waiting_seconds
