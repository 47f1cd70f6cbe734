"""Recorder of a module's metrics and spans: one JSON object per line, in files that no other process writes.

Lines are buffered and written once a second and at the end, so a killed process loses only its last second. The layout
of the files is explained in `quartet.telemetry.slices`, the sums over time in `quartet.telemetry.rollup`.
"""

import atexit
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import msgspec

from quartet.telemetry.activities import activity
from quartet.telemetry.metrics import DECLARE_ADVICE, LABEL, described
from quartet.telemetry.rollup import ROLLUP_SECONDS, SLOTS_PER_FILE, Ladder, finite
from quartet.telemetry.slice_writer import SliceWriter
from quartet.telemetry.slices import SLICE_SECONDS, SPANS, new_writer
from quartet.telemetry.spans import PIECE_SECONDS, Span

LOG = logging.getLogger(__name__)
FLUSH_SECONDS = 1.0
_encode = msgspec.json.Encoder().encode


class Recorder:
    """Recorder of the metrics and spans of one module instance. It is thread-safe. Close it at the end, or use `with`.

    If a write fails, for instance because the disk is full, the next call raises the error. If a `with` block ends with
    another error, the failed write becomes a note of that error.
    """

    def __init__(self, run_dir: Path, role: str, *, clock: Callable[[], float] = time.time) -> None:
        self.role = role
        self._clock, self._now = clock, 0.0
        writer = new_writer(run_dir, role, clock())
        self._metrics = SliceWriter(writer.folder, SLICE_SECONDS)
        self._spans = SliceWriter(run_dir / SPANS / role / writer.name, SLICE_SECONDS)
        self._rollups = {s: SliceWriter(writer.rollups(s), s * SLOTS_PER_FILE) for s in ROLLUP_SECONDS}
        self._ladder = Ladder()
        self._names: dict[str, _Names] = {}
        self._open: dict[int, OpenSpan] = {}
        self._lock = threading.Lock()
        self._busy, self._closed = threading.Event(), threading.Event()
        self._failure: OSError | None = None
        self._flusher = threading.Thread(target=self._flush_regularly, name=f"records of {role}", daemon=True)
        self._flusher.start()
        atexit.register(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except OSError as failure:
            if error is None:
                raise
            error.add_note(f"and {self.role} could not write its last records: {failure}")

    def metric(self, area: str, /, **values: Any) -> None:
        """Write one record of values that were measured together: argument NAME is the value of metric `area/NAME`.

        A number that is not finite is null in the record and left out of the rollups. A metric that is not declared is
        recorded with one warning, since a missing declaration must not end a run.
        """
        names = self._names.get(area) or self._names.setdefault(area, _Names(area))
        numbers = [(name, float(value)) for thing, value in values.items() if (name := names[thing]) and finite(value)]
        with self._lock:
            now = self._tick()
            if now >= self._ladder.due_at:
                self._write_rollups(now)
            self._metrics.add(now, _encode({"time": now, "area": area, **values}))
            self._ladder.add(now, numbers)
        self._busy.set()

    def begin(self, name: str, *, lane: str = "", trace: str = "", reason: str = "", **fields: Any) -> "OpenSpan":
        """Begin a span of an activity declared in `quartet.telemetry.activities`; call `end` on the result."""
        activity(name)
        head = {"name": name, "lane": lane, "trace": trace, "reason": reason, "fields": fields}
        with self._lock:
            span = OpenSpan(self, {key: value for key, value in head.items() if value}, self._tick())
            self._open[id(span)] = span
        self._busy.set()
        return span

    @contextmanager
    def span(self, name: str, *, lane: str = "", trace: str = "", reason: str = "", **fields: Any) -> Iterator[None]:
        """Record the duration of the block as a span."""
        span = self.begin(name, lane=lane, trace=trace, reason=reason, **fields)
        try:
            yield
        finally:
            span.end()

    def finished(self, span: Span) -> None:
        """Record a span whose start and duration the caller has measured."""
        activity(span.name)
        with self._lock:
            self._spans.add(self._tick(), _encode(span))
        self._busy.set()

    def flush(self) -> None:
        """Write the buffered lines and the rollups of slots that have ended."""
        with self._lock:
            self._catch_up(self._tick())

    def close(self) -> None:
        """End all open spans, write everything and stop; raise the error of a failed write. Do nothing if closed."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._busy.set()
        self._flusher.join()
        atexit.unregister(self.close)
        with (
            self._lock,
            ExitStack() as steps,
        ):  # the steps run in reverse order, all of them even if one fails
            steps.callback(self._raise_failure)
            steps.callback(self._flush)
            steps.callback(self._write_rollups, math.inf)
            steps.callback(self._end_spans)

    def _tick(self) -> float:
        """Return Unix seconds that never decrease, so that a written slot stays unchanged."""
        self._raise_failure()
        self._now = max(self._now, self._clock())
        return self._now

    def _raise_failure(self) -> None:
        """Raise the error of a failed write in the flusher's thread, once."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _end(self, span: "OpenSpan") -> None:
        with self._lock:
            if self._open.pop(id(span), None) is not None:
                self._write_piece(span, self._tick(), continues=False)

    def _end_spans(self) -> None:
        self._now = max(self._now, self._clock())
        for span in self._open.values():
            self._write_piece(span, self._now, continues=False)
        self._open.clear()

    def _write_piece(self, span: "OpenSpan", now: float, *, continues: bool) -> None:
        line = {"start": span.start, "seconds": round(now - span.start, 6), **span.head}
        self._spans.add(now, _encode(line | {"continues": True} if continues else line))
        span.start = now

    def _write_rollups(self, now: float) -> None:
        """Write the rollups of slots that have ended by `now`, after the records that they sum up."""
        self._metrics.flush()
        for seconds, slot in self._ladder.take(now):
            self._rollups[seconds].add(slot.begin, _encode(slot))

    def _flush(self) -> None:
        """Flush all files, even if one of them fails."""
        with ExitStack() as files:
            for file in (self._metrics, self._spans, *self._rollups.values()):
                files.callback(file.flush)

    def _flush_regularly(self) -> None:
        """Flush once a second, in the flusher's thread, which sleeps while no span is open and nothing is buffered."""
        while not self._closed.is_set():
            self._busy.wait()
            self._closed.wait(FLUSH_SECONDS)
            with self._lock:
                try:
                    self._catch_up(max(self._now, self._clock()))
                except OSError as error:
                    self._failure = error

    def _catch_up(self, now: float) -> None:
        self._now = now
        for span in self._open.values():
            if now - span.start >= PIECE_SECONDS:
                self._write_piece(span, now, continues=True)
        if now >= self._ladder.due_at:
            self._write_rollups(now)
        self._flush()
        if not self._open and self._ladder.due_at > now + ROLLUP_SECONDS[0]:
            self._busy.clear()


class OpenSpan:
    """Span in progress. A long span is written in pieces, so that readers see it before it ends."""

    __slots__ = ("_recorder", "head", "start")

    def __init__(self, recorder: Recorder, head: dict[str, Any], start: float) -> None:
        self._recorder, self.head, self.start = recorder, head, start

    def end(self) -> None:
        """End the span now; a second call does nothing."""
        self._recorder._end(self)


class _Names(dict[str, str | None]):
    """Cache for one area: metric name by key of a recorded value; None for a label, which forms no series."""

    def __init__(self, area: str) -> None:
        super().__init__()
        self._area = area

    def __missing__(self, thing: str) -> str | None:
        metric = described(f"{self._area}/{thing}")
        if not metric.module:
            LOG.warning("metric %r is recorded, but not declared: %s", metric.name, DECLARE_ADVICE)
        name = self[thing] = None if metric.unit == LABEL else metric.name
        return name
