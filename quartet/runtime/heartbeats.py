"""When each module was last heard from, by the supervisor's own monotonic clock.

A heartbeat is a row that changed. The times in it are those of another process, perhaps of another machine, and a wall
clock may be set to any time, so they are compared for equality only.
"""

import time
from collections.abc import Callable

from quartet.ledger import Ledger
from quartet.ledger.rows import ModuleRow
from quartet.types.phase import STARTING

MAX_GAP_SECONDS = 1.0
"""Between two looks at most this much counts as silence: a module is not silent because the database or the
supervisor itself was."""


class Heartbeats:
    """Make one before modules are started: what it finds is from earlier processes."""

    def __init__(self, ledger: Ledger, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger, self._clock = ledger, clock
        self._looked_at = clock()
        self._rows = {row.module: row for row in ledger.modules()}
        self._heard: set[str] = set()
        self._silent_seconds: dict[str, float] = {}

    def started(self, module: str) -> None:
        """A new process of `module` is being started, and was not heard yet."""
        self._heard.discard(module)
        self._silent_seconds[module] = 0.0

    def look(self) -> None:
        """Read all heartbeats."""
        rows = {row.module: row for row in self._ledger.modules()}
        now = self._clock()
        gap_seconds = min(now - self._looked_at, MAX_GAP_SECONDS)
        for module in self._silent_seconds:
            if module in rows and _beat(rows[module]) != _beat(self._rows.get(module)):
                self._heard.add(module)
                self._silent_seconds[module] = 0.0
            else:
                self._silent_seconds[module] += gap_seconds
        self._looked_at, self._rows = now, rows

    def is_up(self, module: str, pid: int | None) -> bool:
        """Whether the present process of `module` has reported that it is past its start."""
        row = self._rows.get(module)
        return row is not None and module in self._heard and row.pid == pid and row.state != STARTING

    def silent_seconds(self, module: str) -> float:
        """Time since the last heartbeat or the start of the process."""
        return self._silent_seconds[module]


def _beat(row: ModuleRow | None) -> tuple[int, float] | None:
    return (row.pid, row.beat_at) if row else None
