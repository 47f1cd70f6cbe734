"""What a module is doing right now, what it waits for, since when, and what would end the wait."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class ReportSink(Protocol):
    """The ledger's side of a presence: one row per module."""

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
    ) -> None: ...


class Presence:
    """Heartbeat and explanation of one module; every call to `beat` is cheap (written at most once a second)."""

    def __init__(self, sink: ReportSink, module: str, *, url: str = "", interval_seconds: float = 1.0) -> None:
        self._sink, self._module, self._url = sink, module, url
        self._interval_seconds = interval_seconds
        self._state, self._waiting_for, self._ends_when = "starting", "", ""
        self._since = time.time()
        self._last_write = 0.0
        self.waiting_seconds = 0.0
        """Wall seconds spent waiting since the module started."""
        self.beat(force=True)

    def working(self, state: str) -> None:
        """The module does `state` from now on."""
        self._change(state, "", "")

    def waits(self, waiting_for: str, ends_when: str) -> None:
        """The module waits from now on, until `working` or another wait."""
        self._change("waiting", waiting_for, ends_when)

    @contextmanager
    def waiting(self, waiting_for: str, ends_when: str, *, then: str = "working") -> Iterator[None]:
        """Wait inside the block, then go back to `then`."""
        self.waits(waiting_for, ends_when)
        try:
            yield
        finally:
            self.working(then)

    def beat(self, *, force: bool = False) -> None:
        """Tell the ledger that the module lives; call it from every loop."""
        now = time.time()
        if not force and now - self._last_write < self._interval_seconds:
            return
        self._last_write = now
        pending = now - self._since if self._waiting_for else 0.0
        self._sink.report(
            self._module,
            state=self._state,
            waiting_for=self._waiting_for,
            ends_when=self._ends_when,
            since=self._since,
            waiting_seconds=self.waiting_seconds + pending,
            url=self._url,
        )

    def _change(self, state: str, waiting_for: str, ends_when: str) -> None:
        if (state, waiting_for) != (self._state, self._waiting_for):
            now = time.time()
            if self._waiting_for:
                self.waiting_seconds += now - self._since
            self._since = now
        self._state, self._waiting_for, self._ends_when = state, waiting_for, ends_when
        self.beat()
