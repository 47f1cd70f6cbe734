"""Spans: activities of modules over time, read one window at a time."""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from quartet.telemetry.line_decoder import LineDecoder
from quartet.telemetry.slices import SPANS, Writer, writers

PIECE_SECONDS = 30.0
"""Longest piece of a span; longer spans are written in pieces while they last. A window needs its own files and those
of this much time after it."""
_LATE_SECONDS = 5.0
"""Largest delay of writing a piece."""


class Span(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One activity or wait of a module. Spans of one lane do not overlap, but one may enclose others."""

    start: float
    """Unix seconds."""
    seconds: float
    name: str
    """Activity, one of `quartet.telemetry.activities.ACTIVITIES`; a `wait` has a `reason`."""
    role: str = ""
    """Module instance: `worker`, `engine`, `engine-2`, `trainer`."""
    lane: str = ""
    """Row of the role: a session (`session 3`), or empty for the module itself."""
    trace: str = ""
    """Id shared by related spans: `rollout 12.1` (rollout 12, attempt 1), `train_step 7`. Its first word is the
    activity of the span that encloses the others."""
    reason: str = ""
    """Reason of a wait."""
    continues: bool = False
    """True if another piece follows, which begins where this one ends."""
    fields: dict[str, Any] = msgspec.field(default_factory=dict)
    """Further values by name: `family`, `train_step`."""

    @property
    def end(self) -> float:
        """Unix seconds."""
        return self.start + self.seconds


class SpanPage(msgspec.Struct, frozen=True, kw_only=True):
    """Spans that overlap a window, by start."""

    spans: list[Span]
    truncated: bool
    """True if there are more than `max_spans`; the page then has the longest of each row."""


def read_spans(
    run_dir: Path, start: float, end: float, *, roles: tuple[str, ...] | None = None, max_spans: int = 20_000
) -> SpanPage:
    """Return the spans that overlap [start, end) (Unix seconds), of all roles or of some. Reads only that window's
    files.

    Raises `RecordsError` for a run that an older Quartet recorded.
    """
    found = [span for writer in writers(run_dir, SPANS, roles) for span in _overlapping(writer, start, end)]
    truncated = len(found) > max_spans
    if truncated:
        found = longest_of_each_row(found, max_spans)
    return SpanPage(spans=sorted(found, key=lambda span: (span.start, -span.seconds)), truncated=truncated)


def longest_of_each_row(spans: Iterable[Span], max_spans: int) -> list[Span]:
    """Return `max_spans` spans, the longest of each row first, so that no row displaces another."""
    rows: dict[tuple[str, str], list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: -span.seconds):
        rows[span.role, span.lane].append(span)
    ranked = (pair for row in rows.values() for pair in enumerate(row))
    return [span for _, span in heapq.nsmallest(max_spans, ranked, key=lambda pair: pair[0])]


def _overlapping(writer: Writer, start: float, end: float) -> Iterator[Span]:
    """Yield one writer's spans."""
    for span in decode_spans(writer.lines(start, end + PIECE_SECONDS + _LATE_SECONDS)):
        if span.start < end and span.end >= start:
            yield msgspec.structs.replace(span, role=writer.role)


def _is_whole(span: Span) -> bool:
    return math.isfinite(span.start) and 0 <= span.seconds < math.inf


decode_spans = LineDecoder("the spans", Span, is_whole=_is_whole)
