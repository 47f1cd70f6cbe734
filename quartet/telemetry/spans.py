"""Spans: activities and waits of modules over time; reader of the spans in a time window."""

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
"""Maximum length of a piece; a longer span is written in pieces while it lasts. A line is written at the end of its
piece, so the spans of a window are in the window's files and those of the next `PIECE_SECONDS`."""
_LATE_SECONDS = 5.0
"""Maximum delay of writing a piece."""


class Span(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One activity or wait of a module. Spans of one lane do not overlap, but one may enclose others."""

    start: float
    """Unix seconds."""
    seconds: float
    name: str
    """Activity, one of `quartet.telemetry.activities.ACTIVITIES`; a `wait` has a `reason`."""
    role: str = ""
    """Module instance, for example `worker`, `engine`, `engine-2`, `trainer`."""
    lane: str = ""
    """Row within the role, for example a session (`session 3`); empty for the module itself."""
    trace: str = ""
    """Id that related spans share, for example `rollout 12.1` (rollout 12, attempt 1) or `train_step 7`. Its first word
    is the activity of the span that encloses the others."""
    reason: str = ""
    """Reason of a wait."""
    continues: bool = False
    """True if another piece of the same activity follows, which begins where this one ends."""
    fields: dict[str, Any] = msgspec.field(default_factory=dict)
    """Further values by name, for example `family`."""

    @property
    def end(self) -> float:
        """End in Unix seconds."""
        return self.start + self.seconds


class SpanPage(msgspec.Struct, frozen=True, kw_only=True):
    """Spans that overlap a window, by start."""

    spans: list[Span]
    truncated: bool
    """True if the window has more than `max_spans` spans; the page then holds the longest ones of each row."""


def read_spans(
    run_dir: Path, start: float, end: float, *, roles: tuple[str, ...] | None = None, max_spans: int = 20_000
) -> SpanPage:
    """Return the spans that overlap [start, end) in Unix seconds, of all roles or of `roles`.

    Only the files of this window are read. Raises `RecordsError` for a run that an older Quartet recorded.
    """
    found = [span for writer in writers(run_dir, SPANS, roles) for span in _overlapping(writer, start, end)]
    truncated = len(found) > max_spans
    if truncated:
        found = longest_of_each_row(found, max_spans)
    return SpanPage(spans=sorted(found, key=lambda span: (span.start, -span.seconds)), truncated=truncated)


def longest_of_each_row(spans: Iterable[Span], max_spans: int) -> list[Span]:
    """Return at most `max_spans` spans: the longest span of each row, then the second longest of each row, and so on.

    A row with many spans therefore does not displace other rows.
    """
    rows: dict[tuple[str, str], list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: -span.seconds):
        rows[span.role, span.lane].append(span)
    ranked = (pair for row in rows.values() for pair in enumerate(row))
    return [span for _, span in heapq.nsmallest(max_spans, ranked, key=lambda pair: pair[0])]


def _overlapping(writer: Writer, start: float, end: float) -> Iterator[Span]:
    """Yield the spans of one writer that overlap [start, end)."""
    for span in decode_spans(writer.lines(start, end + PIECE_SECONDS + _LATE_SECONDS)):
        if span.start < end and span.end >= start:
            yield msgspec.structs.replace(span, role=writer.role)


def _is_whole(span: Span) -> bool:
    return math.isfinite(span.start) and 0 <= span.seconds < math.inf


decode_spans = LineDecoder("the spans", Span, is_whole=_is_whole)
