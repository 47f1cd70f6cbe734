"""Picture of what each module does over a time window: one row per module or session, coloured by activity.

Several runs are drawn below each other on the same scale. To the right of each row is the share of time in which it
works, that is, neither waits nor is idle.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from quartet.report.chrome_trace import row_order
from quartet.telemetry.activities import ACTIVITIES, WAIT, shown_activity
from quartet.telemetry.spans import Span

matplotlib.use("Agg")

ROW_INCHES, PANEL_INCHES, WIDTH_INCHES = 0.2, 0.9, 13.0
LEAST_ROWS = 4
_INK, _GRID = "#333a40", "#c3c9cf"


class Panel(NamedTuple):
    """One run's part of the picture."""

    title: str
    spans: Sequence[Span]
    start: float
    """Left edge, in Unix seconds."""


def draw_timeline(panels: Sequence[Panel], seconds: float, output: Path) -> Path:
    """Draw `seconds` of each panel to a PNG, SVG or PDF, by the suffix of `output`; return `output`."""
    rows = [_rows(panel.spans) for panel in panels]
    heights = [PANEL_INCHES + ROW_INCHES * max(len(names), LEAST_ROWS) for names in rows]
    figure = Figure(figsize=(WIDTH_INCHES, sum(heights) + 0.5), layout="constrained")
    grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, panel, names in zip(grid, panels, rows, strict=True):
        _draw(axes, panel, names, seconds)
    grid[-1].set_xlabel("seconds")
    used = {span.name for panel in panels for span in panel.spans}
    keys = [Patch(color=a.colour, label=a.name.replace("_", " ")) for a in ACTIVITIES.values() if a.name in used]
    figure.legend(handles=keys, loc="outside lower center", ncols=min(10, len(keys)), frameon=False, fontsize=8)
    figure.savefig(output, dpi=150)
    return output


def _rows(spans: Iterable[Span]) -> list[tuple[str, str]]:
    return sorted({(span.role, span.lane) for span in spans}, key=row_order)


def _draw(axes: Axes, panel: Panel, rows: list[tuple[str, str]], seconds: float) -> None:
    for place, row in enumerate(rows):
        mine = [span for span in panel.spans if (span.role, span.lane) == row]
        _draw_row(axes, mine, place, panel.start)
        if not any(works(span) for span in mine):  # no share is shown for a row that only waits
            continue
        share = working_seconds(mine, panel.start, panel.start + seconds) / seconds
        beside: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 7, "color": _INK}
        axes.annotate(f"{100 * share:.0f} %", (1.005, place), **beside)
    axes.set(xlim=(0, seconds), ylim=(max(len(rows), LEAST_ROWS) - 0.4, -0.6))
    axes.set_yticks(range(len(rows)), [" ".join(row).strip() for row in rows], fontsize=7)
    axes.set_title(panel.title, loc="left", fontsize=10)
    axes.tick_params(length=0, labelsize=7, colors=_INK)
    axes.grid(axis="x", color=_GRID, linewidth=0.4)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)


def _draw_row(axes: Axes, spans: list[Span], place: int, start: float) -> None:
    """Draw enclosing activities as tall bars in the background, and waits as thin bars."""
    for name in {span.name for span in spans}:
        known = shown_activity(name)
        height = 0.9 if known.encloses else 0.22 if name == WAIT else 0.66
        bars = [(span.start - start, span.seconds) for span in spans if span.name == name]
        order = 1 if known.encloses else 2
        axes.broken_barh(bars, (place - height / 2, height), facecolors=known.colour, linewidth=0, zorder=order)


def works(span: Span) -> bool:
    """Return whether a span is work: neither a wait nor an activity that only encloses others."""
    return span.name != WAIT and not shown_activity(span.name).encloses


def working_seconds(spans: Iterable[Span], start: float, end: float) -> float:
    """Return how many seconds of [start, end) are covered by work; overlapping spans count once."""
    covered, until = 0.0, start
    for span in sorted(spans, key=lambda span: span.start):
        if not works(span):
            continue
        begins, ends = max(span.start, until), min(span.end, end)
        covered += max(0.0, ends - begins)
        until = max(until, ends)
    return covered
