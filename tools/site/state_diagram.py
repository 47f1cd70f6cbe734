"""Draw Mermaid's state diagrams as SVG when the site is built, without scripts and for any theme.

States are below each other, in the order in which the diagram first leaves them. A transition to the next state is an
arrow down. A transition to a later state is an arrow at the right side, and one to an earlier state at the left side.
"""

import re
from html import escape
from textwrap import wrap
from typing import Any, NamedTuple

MOVE = re.compile(r"^\s*(\w+) --> (\w+): (.+)$", re.MULTILINE)
WIDTH, BOX, TALL, STEP = 440, 110, 36, 86
"""Width of the drawing, width and height of a state's box, and distance from one box to the next, in pixels."""
LEFT, RIGHT = (WIDTH - BOX) // 2, (WIDTH + BOX) // 2
LINE = 17
ASIDE, INSIDE = 17, 23
"""Maximum characters per line of a label at the side, and of a label between two boxes."""


class Move(NamedTuple):
    before: str
    after: str
    when: str


def fence(source: str, *_: Any, **__: Any) -> str:
    """Format a `mermaid` block as HTML."""
    return f'<div class="drawing">{draw([Move(*move) for move in MOVE.findall(source)])}</div>'


def draw(moves: list[Move]) -> str:
    """Return the diagram as one `<svg>`; the page sets its colours and fonts."""
    order = _order(moves)
    parts = [_box(state, order.index(state)) for state in order]
    for move in moves:
        start, end = order.index(move.before), order.index(move.after)
        if end == start + 1:
            parts.append(_down(move, start))
        else:
            parts.append(_around(move, start, end, right=end > start))
    height = (len(order) - 1) * STEP + TALL + 8
    title = escape("; ".join(f"{move.before} to {move.after}: {move.when}" for move in moves))
    marker = (
        '<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0.5 8 4 0 7.5z"/></marker>'
    )
    return (
        f'<svg class="states" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}">'
        f"<defs>{marker}</defs>{''.join(parts)}</svg>"
    )


def _order(moves: list[Move]) -> list[str]:
    """Return the states with outgoing transitions in the order of the diagram, then the states without."""
    left = dict.fromkeys(move.before for move in moves)
    return list(left | dict.fromkeys(move.after for move in moves))


def _box(state: str, row: int) -> str:
    y = 4 + row * STEP
    return (
        f'<rect x="{LEFT}" y="{y}" width="{BOX}" height="{TALL}" rx="8"/>'
        f'<text class="state" x="{WIDTH / 2}" y="{y + TALL / 2 + 5}">{state}</text>'
    )


def _down(move: Move, row: int) -> str:
    top, x = 4 + row * STEP + TALL, WIDTH / 2
    path = f'<path d="M{x} {top} V{top + STEP - TALL - 2}"/>'
    lines = wrap(move.when, INSIDE)
    return path + _label(lines, x + 10, top + (STEP - TALL) / 2 + 4 - LINE * (len(lines) - 1) / 2, "start")


def _around(move: Move, start: int, end: int, *, right: bool) -> str:
    """Return an arrow that leaves a box at the side, runs along the side and enters another box, with its label."""
    edge, rail, anchor = (RIGHT, WIDTH - 14, "start") if right else (LEFT, 14, "end")
    out, into = 4 + start * STEP + TALL / 2 + 5, 4 + end * STEP + TALL / 2 - 5
    path = f'<path d="M{edge} {out} H{rail} V{into} H{edge + (2 if right else -2)}"/>'
    lines = wrap(move.when, ASIDE)
    return path + _label(lines, edge + (12 if right else -12), out - 6 - LINE * (len(lines) - 1), anchor)


def _label(lines: list[str], x: float, y: float, anchor: str) -> str:
    spans = (f'<tspan x="{x}" dy="{LINE if i else 0}">{escape(line)}</tspan>' for i, line in enumerate(lines))
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{"".join(spans)}</text>'
