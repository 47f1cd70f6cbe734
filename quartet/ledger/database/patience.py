"""How long this process waits for a database server that does not answer, and who is told of the wait.

A server that is frozen, or cut off without a reset, still has its connections: the kernel on the other side
acknowledges what is sent, and no time-out of TCP fires. So every wait for an answer is bounded here, in the client.
"""

import logging
import time
from collections.abc import Callable

LOG = logging.getLogger(__name__)

EXPLAIN_AFTER_SECONDS = 3.0
"""A wait that is longer than this is reported."""
STOPPING_SECONDS = 2.0
"""Bound of a wait once the process was asked to stop: modules have 8 seconds for all that they do then."""


class Patience:
    """Bound of every wait for the database. There is one per process, `PATIENCE`: signals are for the whole process."""

    def __init__(self) -> None:
        self.seconds = 60.0
        """`runtime.ledger_patience_seconds`."""
        self.report: Callable[[str], None] = LOG.warning
        """Receives a sentence when a wait becomes long, and one when it ends."""
        self.server_is_silent = False
        """The latest wait ended without an answer."""
        self._stopping = False

    def stop(self) -> None:
        """Shorten all waits, the present one too: the process was asked to stop. Safe in a signal handler."""
        self._stopping = True

    def resume(self) -> None:
        """Return to the full patience."""
        self._stopping = self.server_is_silent = False

    @property
    def left_seconds(self) -> float:
        """Bound of a wait that begins now; 0 when the process stops and the server was silent in an earlier wait."""
        if not self._stopping:
            return self.seconds
        return 0.0 if self.server_is_silent else STOPPING_SECONDS


PATIENCE = Patience()


class Wait:
    """One wait for the answer of `server`."""

    def __init__(self, server: str) -> None:
        self._server, self._begun_at, self._reported = server, time.monotonic(), False

    @property
    def seconds(self) -> float:
        """Duration so far."""
        return time.monotonic() - self._begun_at

    def is_over(self) -> bool:
        """Whether the patience is exhausted. Call it about ten times a second; a long wait is reported once."""
        if self.seconds >= PATIENCE.left_seconds:
            PATIENCE.server_is_silent = True
            return True
        if self.seconds >= EXPLAIN_AFTER_SECONDS and not self._reported:
            self._reported = True
            left_seconds = PATIENCE.left_seconds - self.seconds
            PATIENCE.report(f"waits for the database {self._server}: no answer; gives up in {left_seconds:.0f} s")
        return False

    def answered(self) -> None:
        """End the wait, and say so when its beginning was reported."""
        if self._reported:
            PATIENCE.report(f"the database {self._server} answers again, after {self.seconds:.0f} s")
