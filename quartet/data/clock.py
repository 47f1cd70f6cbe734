"""The training clock: wall seconds that a run has trained, over all its restarts."""

from quartet.data.ledger import Ledger

_KEY = "training_seconds"
_WRITE_SECONDS = 1.0


class TrainingClock:
    """Counts while it is ticked, and keeps the count in the ledger; a kill loses at most a second of it."""

    def __init__(self, ledger: Ledger, now: float) -> None:
        self._ledger, self._last = ledger, now
        self.seconds: float = ledger.value(_KEY, 0.0)
        self._written = self.seconds

    def tick(self, now: float, *, counts: bool) -> None:
        """Time has passed until `now` (Unix seconds); it `counts` when the run trained in it.

        A clock that was set back counts as no time.
        """
        if counts:
            self.seconds += max(now - self._last, 0.0)
        self._last = now
        if self.seconds - self._written >= _WRITE_SECONDS:
            self.save()

    def save(self) -> None:
        """Write the count now."""
        self._ledger.set_value(_KEY, self.seconds)
        self._written = self.seconds
