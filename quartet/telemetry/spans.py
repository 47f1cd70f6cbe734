"""What modules did, and when: spans, read a window at a time."""

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
"""A span that lasts longer stands in pieces, written while it goes on: a window needs the files of itself and of so
much after it."""
_LATE_SECONDS = 5.0
"""A piece is written so much later at most."""


class Span(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing a module did, or waited for. Spans of one lane do not overlap, except that one may enclose others."""

    start: float
    """Unix seconds."""
    seconds: float
    name: str
    """What it did, one of `quartet.telemetry.activities.ACTIVITIES`; a `wait` has a `reason`."""
    role: str = ""
    """Which module instance: `worker`, `engine`, `engine-2`, `trainer`."""
    lane: str = ""
    """Which of the role's rows: a session (`session 3`), or empty for the module itself."""
    trace: str = ""
    """Spans with the same trace belong together: `rollout 12.1` (rollout 12, attempt 1), `train_step 7`. Its first word
    is the activity of the span that encloses the others."""
    reason: str = ""
    """Of a wait: what for."""
    continues: bool = False
    """It goes on in another piece, which begins where this one ends."""
    fields: dict[str, Any] = msgspec.field(default_factory=dict)
    """Anything else, by name: `family`, `train_step`."""

    @property
    def end(self) -> float:
        """Unix seconds."""
        return self.start + self.seconds


class SpanPage(msgspec.Struct, frozen=True, kw_only=True):
    """The spans that overlap a window, by start."""

    spans: list[Span]
    truncated: bool
    """There are more than `max_spans`: these are the longest of each row."""


def read_spans(
    run_dir: Path, start: float, end: float, *, roles: tuple[str, ...] | None = None, max_spans: int = 20_000
) -> SpanPage:
    """The spans that overlap [start, end) (Unix seconds), of all roles or of some. Reads that window's files only.

    Raises `RecordsError` for a run that an older Quartet recorded.
    """
    found = [span for writer in writers(run_dir, SPANS, roles) for span in _overlapping(writer, start, end)]
    truncated = len(found) > max_spans
    if truncated:
        found = longest_of_each_row(found, max_spans)
    return SpanPage(spans=sorted(found, key=lambda span: (span.start, -span.seconds)), truncated=truncated)


def longest_of_each_row(spans: Iterable[Span], max_spans: int) -> list[Span]:
    """As many of each row as fit, so that none crowds another out."""
    rows: dict[tuple[str, str], list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: -span.seconds):
        rows[span.role, span.lane].append(span)
    ranked = (pair for row in rows.values() for pair in enumerate(row))
    return [span for _, span in heapq.nsmallest(max_spans, ranked, key=lambda pair: pair[0])]


def _overlapping(writer: Writer, start: float, end: float) -> Iterator[Span]:
    """One writer's spans."""
    for span in decode_spans(writer.lines(start, end + PIECE_SECONDS + _LATE_SECONDS)):
        if span.start < end and span.end >= start:
            yield msgspec.structs.replace(span, role=writer.role)


def _is_whole(span: Span) -> bool:
    return math.isfinite(span.start) and 0 <= span.seconds < math.inf


decode_spans = LineDecoder("the spans", Span, is_whole=_is_whole)
