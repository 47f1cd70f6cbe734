"""A window of spans as the timeline draws it: rows of modules and lanes, and how each module's time was shared out."""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from quartet.telemetry.activities import WAIT, shown_activity
from quartet.telemetry.spans import Span, read_spans
from quartet.web.density import PIECES, density

MOST_SECONDS = 600.0
"""A window is never longer."""
MOST_SPANS, MOST_COUNTED_SPANS = 6000, 200_000
"""So many are drawn one by one, and so many at most are read."""
_ORDER = ("manager", "trainer", "engine", "worker", "env")
"""Those with one row first: no number of requests and sessions moves them out of sight."""


def window(run_dir: Path, start: float, seconds: float) -> dict[str, Any]:
    """Return the rows of spans that overlap [start, start + seconds), as JSON. A row with more spans than its part of
    `MOST_SPANS` stands as density. Raises `RecordsError` for an older run."""
    page = read_spans(run_dir, start, start + seconds, max_spans=MOST_COUNTED_SPANS)
    lanes = _by_lane(page.spans)
    most = max(PIECES, MOST_SPANS // max(len(lanes), 1))
    return {
        "start": start,
        "seconds": seconds,
        "truncated": page.truncated,
        "rows": [
            {"role": role, "lane": lane, **_shown(lanes[role, lane], start, seconds, most)}
            for role, lane in sorted(lanes, key=_place)
        ],
        "shares": [
            {"role": role, "lanes": len(_lanes(lanes, role)), "activities": shares_of(lanes, role, start, seconds)}
            for role in sorted({role for role, _ in lanes}, key=lambda role: _place((role, "")))
        ],
    }


def _shown(spans: list[Span], start: float, seconds: float, most: int) -> dict[str, Any]:
    """Return the spans one by one, or what they come to where there are too many."""
    if len(spans) > most:
        return {"spans": [], "density": density(spans, start, seconds)}
    return {"spans": [_drawn(span, start) for span in spans], "density": []}


def shares_of(
    lanes: dict[tuple[str, str], list[Span]], role: str, start: float, seconds: float
) -> list[dict[str, Any]]:
    """Shares of the window by activity of a module's lanes, waits by their reason, most first.

    Spans that only enclose others are left out, so that nothing counts twice.
    """
    sums: dict[tuple[str, str], float] = defaultdict(float)
    counted = _lanes(lanes, role)
    for lane in counted:
        for span in lanes[role, lane]:
            if not shown_activity(span.name).encloses:
                inside = min(span.end, start + seconds) - max(span.start, start)
                sums[span.name, span.reason] += max(inside, 0.0)
    whole = seconds * len(counted)
    shares = sorted(sums.items(), key=lambda item: -item[1])
    return [
        {"name": name, "reason": reason, "share": spent / whole, "waits": name == WAIT}
        for (name, reason), spent in shares
    ]


def _by_lane(spans: list[Span]) -> dict[tuple[str, str], list[Span]]:
    """By role and lane, each by start: what encloses others comes before them."""
    lanes: dict[tuple[str, str], list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: (span.start, -span.seconds)):
        lanes[span.role, span.lane].append(span)
    return lanes


def _drawn(span: Span, start: float) -> list[Any]:
    """[offset in seconds, seconds, name, reason, trace, other fields]; offsets keep their microseconds in JSON."""
    return [round(span.start - start, 6), round(span.seconds, 6), span.name, span.reason, span.trace, span.fields]


def _lanes(lanes: dict[tuple[str, str], list[Span]], role: str) -> list[str]:
    """The rows whose time is shared out: a module's sessions, or itself when it has none."""
    own = [lane for owner, lane in lanes if owner == role]
    return [lane for lane in own if lane] or own


def _place(row: tuple[str, str]) -> tuple[Any, ...]:
    """By module, then by the numbers in the lane's name."""
    role, lane = row
    kind = role.partition("-")[0]
    numbers = [int(number) for number in re.findall(r"[0-9]{1,9}", lane)]
    return (_ORDER.index(kind) if kind in _ORDER else len(_ORDER), role, numbers, lane)
