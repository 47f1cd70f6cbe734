"""Writes of files by a thread beside training, one at a time: checkpoints and published policies."""

import time
from collections.abc import Callable
from concurrent import futures

from quartet.on_progress import no_progress
from quartet.telemetry.presence import Presence

BEAT_SECONDS = 0.5
END = "it is complete on disk"
"""Reported end of the wait for a write."""


class BackgroundWrite:
    """Thread that writes one kind of files for a trainer."""

    def __init__(
        self, what: str, presence: Presence, timeout_seconds: float, on_end: Callable[[], None] = no_progress
    ) -> None:
        """`what` names the files where the trainer reports that it waits for them; `timeout_seconds` is that of the
        trainer's heartbeats. `on_end` is called, mostly by the thread, once a write has ended."""
        self._what, self._presence, self._timeout_seconds = what, presence, timeout_seconds
        self._on_end = on_end
        self._thread = futures.ThreadPoolExecutor(1, thread_name_prefix=what)
        self._writing: futures.Future[None] | None = None
        self._progressed_at = 0.0  # monotonic time of the write's last progress

    @property
    def has_ended(self) -> bool:
        """True if a write has ended whose result was not taken yet."""
        return self._writing is not None and self._writing.done()

    @property
    def has_succeeded(self) -> bool:
        """True if a write has ended without an error, and its result was not taken yet."""
        return self._writing is not None and self._writing.done() and self._writing.exception() is None

    def begin(self, write: Callable[[Callable[[], None]], None]) -> None:
        """Begin to write. `write` gets a callback that it calls whenever it has made progress."""
        assert self._writing is None, "the write before has ended, and its result was taken"
        self._note_progress()
        self._writing = self._thread.submit(write, self._note_progress)
        self._writing.add_done_callback(lambda _: self._on_end())

    def collect(self) -> bool:
        """Take the result of a write that has ended, and return whether there was one. Raise the error of a write that
        failed, every time."""
        if self._writing is None or not self._writing.done():
            return False
        self._writing.result()
        self._writing = None
        return True

    def forget(self) -> None:
        """Drop the result of a write that has ended, and its error."""
        self._writing = None

    def wait(self, on_progress: Callable[[], None]) -> None:
        """Return when no write is in progress.

        `on_progress` is called while the write makes progress. If the write hangs, the trainer's heartbeats end, so the
        supervisor restarts the trainer.
        """
        if self._writing is None or self._writing.done():
            return
        with self._presence.waiting(self._what, END, then="training"):
            while not self._writing.done():
                futures.wait([self._writing], timeout=BEAT_SECONDS)
                if self._is_alive:
                    on_progress()

    def close(self) -> None:
        """Return when the thread has ended. The error of a write that failed is not raised."""
        self._thread.shutdown()

    def explain(self, on_progress: Callable[[], None]) -> None:
        """Report that the trainer waits for the write, and call `on_progress`, unless the write hangs; see `wait`."""
        if self._is_alive:
            self._presence.waits(self._what, END)
            on_progress()

    @property
    def _is_alive(self) -> bool:
        return time.monotonic() - self._progressed_at < self._timeout_seconds

    def _note_progress(self) -> None:
        self._progressed_at = time.monotonic()
