"""The training clock: wall seconds that a run has trained, over all its restarts.

It begins when every module is up, so that neither the start of a run nor that of its resumes counts, and it ends with
the request to stop. A module that dies in between and is started again costs training time; so does the data manager,
which keeps the clock: the next one counts from where the last one wrote.
"""

from quartet.ledger import Ledger

_KEY = "training_seconds"
_COUNTED_UNTIL = "training_seconds_until"
"""The time, by `Ledger.now`, that the written count reaches to; null while the clock stands still."""
_WRITE_SECONDS = 1.0


class TrainingClock:
    """Counts while it is ticked, and keeps the count in the ledger; when the run is killed, what passed since the last
    write is not counted: a second, or the time between two ticks.

    `counts` says whether the run trains at `now` (by `Ledger.now`). Then whoever kept the clock before died while it
    did.
    """

    def __init__(self, ledger: Ledger, now: float, *, counts: bool) -> None:
        self._ledger, self._last, self._counts = ledger, now, counts
        self.seconds: float = ledger.value(_KEY, 0.0)
        self._written = self.seconds
        until: float | None = ledger.value(_COUNTED_UNTIL)
        if counts:
            self._last = now if until is None else until
        elif until is not None:  # of a run that was killed: its pause is nobody's training
            self.save()

    def tick(self, now: float, *, counts: bool) -> None:
        """Time has passed until `now` (by `Ledger.now`), in which the run did as the last tick said. What comes now
        `counts` when the run trains.

        A clock that was set back counts as no time.
        """
        if self._counts:
            self.seconds += max(now - self._last, 0.0)
        turned = counts != self._counts
        self._last, self._counts = now, counts
        if turned or self.seconds - self._written >= _WRITE_SECONDS:
            self.save()

    def save(self) -> None:
        """Write the count now."""
        # In this order: killed in between, a moment is not counted, and none is counted twice.
        self._ledger.set_value(_COUNTED_UNTIL, self._last if self._counts else None)
        self._ledger.set_value(_KEY, self.seconds)
        self._written = self.seconds
