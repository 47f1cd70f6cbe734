"""Shares of time by activity in equal pieces of a window, for a row with too many spans to draw one by one."""

from collections import defaultdict
from collections.abc import Sequence

from quartet.telemetry.activities import shown_activity
from quartet.telemetry.spans import Span

PIECES = 400
"""Number of pieces of a window; a piece is about three pixels wide."""

Piece = dict[str, float]
"""Share of a piece's time, 0 to 1, by activity."""


def density(spans: Sequence[Span], start: float, seconds: float) -> list[Piece]:
    """Return the shares in `PIECES` pieces of [start, start + seconds), without spans that only enclose others."""
    width = seconds / PIECES
    pieces: list[defaultdict[str, float]] = [defaultdict(float) for _ in range(PIECES)]
    for span in spans:
        if shown_activity(span.name).encloses:
            continue
        begin, end = max(span.start - start, 0.0) / width, min(span.end - start, seconds) / width
        for piece in range(int(begin), min(int(end), PIECES - 1) + 1):
            pieces[piece][span.name] += max(min(end, piece + 1) - max(begin, piece), 0.0)
    return [{name: round(min(share, 1.0), 4) for name, share in piece.items() if share} for piece in pieces]
