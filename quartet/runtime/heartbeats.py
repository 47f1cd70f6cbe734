"""Time since each module's last heartbeat, by the supervisor's monotonic clock.

A heartbeat is a change of the module's row. The times in the row were written by another process, possibly on another
machine with a wrong wall clock, so they are compared for equality only.
"""

import time
from collections.abc import Callable

from quartet.ledger import Ledger
from quartet.ledger.rows import ModuleRow
from quartet.runtime.silence import Silence, longest_wait, processor_waits
from quartet.types.phase import STARTING

MAX_GAP_SECONDS = 1.0
"""Maximum silence counted between two reads, so that a stall of the database or of the supervisor is not counted as a
silence of the modules."""


class Heartbeats:
    """Tracker of heartbeats. Create the tracker before modules are started, since it treats existing rows as those of
    earlier processes."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Callable[[], float] = time.monotonic,
        waits: Callable[[int], dict[int, float]] = processor_waits,
    ) -> None:
        self._ledger, self._clock, self._read_waits = ledger, clock, waits
        self._polled_at = clock()
        self._rows = {row.module: row for row in ledger.modules.all()}
        self._beating: set[str] = set()
        self._silent_seconds: dict[str, float] = {}
        self._pids: dict[str, int | None] = {}
        self._waits: dict[str, dict[int, float]] = {}  # of each module's threads, at its last heartbeat

    def started(self, module: str, pid: int | None = None) -> None:
        """Set the silence of a module to 0 and count it as not up. Call this when a new process of the module is
        started.

        `pid` is None for a process of another machine, of which all silence counts. Of several ranks it is rank 0,
        which sends the heartbeats.
        """
        self._beating.discard(module)
        self._pids[module] = pid
        self._restart_silence(module)

    def poll(self) -> None:
        """Read all heartbeats."""
        rows = {row.module: row for row in self._ledger.modules.all()}
        now = self._clock()
        gap_seconds = min(now - self._polled_at, MAX_GAP_SECONDS)
        for module in self._silent_seconds:
            if module in rows and _beat(rows[module]) != _beat(self._rows.get(module)):
                self._beating.add(module)
                self._restart_silence(module)
            else:
                self._silent_seconds[module] += gap_seconds
        self._polled_at, self._rows = now, rows

    def is_up(self, module: str, pid: int | None) -> bool:
        """Return whether the current process of `module` has reported that its start-up is complete."""
        row = self._rows.get(module)
        return row is not None and module in self._beating and row.pid == pid and row.state != STARTING

    def silent_seconds(self, module: str) -> float:
        """Return the time since the last heartbeat, or since the start of the process."""
        return self._silent_seconds[module]

    def silence(self, module: str) -> Silence:
        """Return the time since the last heartbeat with the part of it that the module waited for a processor."""
        seconds, waited_seconds = self._silent_seconds[module], longest_wait(self._waits[module], self._threads(module))
        if waited_seconds is not None:  # it also waited between two reads, of which at most `MAX_GAP_SECONDS` counts
            waited_seconds = min(waited_seconds, seconds)
        return Silence(seconds=seconds, waited_seconds=waited_seconds)

    def _restart_silence(self, module: str) -> None:
        self._silent_seconds[module], self._waits[module] = 0.0, self._threads(module)

    def _threads(self, module: str) -> dict[int, float]:
        pid = self._pids[module]
        return {} if pid is None else self._read_waits(pid)


def _beat(row: ModuleRow | None) -> tuple[int, float] | None:
    return (row.pid, row.stored_beat) if row else None
