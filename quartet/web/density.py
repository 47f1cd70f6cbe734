"""A row with more spans than can be drawn, as shares of the time: what its lane did in each of some equal pieces."""

from collections import defaultdict
from collections.abc import Sequence

from quartet.telemetry.activities import shown_activity
from quartet.telemetry.spans import Span

PIECES = 400
"""Of a window: about as many as a picture has columns of three pixels."""

Piece = dict[str, float]
"""By activity: the share of the piece, 0 to 1."""


def density(spans: Sequence[Span], start: float, seconds: float) -> list[Piece]:
    """Return the shares in `PIECES` pieces of [start, start + seconds). Spans that only enclose others do not count."""
    width = seconds / PIECES
    pieces: list[defaultdict[str, float]] = [defaultdict(float) for _ in range(PIECES)]
    for span in spans:
        if shown_activity(span.name).encloses:
            continue
        begin, end = max(span.start - start, 0.0) / width, min(span.end - start, seconds) / width
        for piece in range(int(begin), min(int(end), PIECES - 1) + 1):
            pieces[piece][span.name] += max(min(end, piece + 1) - max(begin, piece), 0.0)
    return [{name: round(min(share, 1.0), 4) for name, share in piece.items() if share} for piece in pieces]
