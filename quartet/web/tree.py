"""Tree of a group with forked rollouts: a row per rollout, a cell per call, and a line from each fork to its parent.

A cell's colour is the credit of its edge of the tree: the mean advantage of the call's trained tokens.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from quartet.web.queries.rollout import RolloutFacts
from quartet.web.tokens import MEASURES

LEFT, PITCH, MOST_CELL_WIDTH, MOST_WIDTH = 76, 26, 20, 900
"""Width of the names, height of a row, maximum width of a cell and of all cells, in pixels."""
_ADVANTAGE = next(measure for measure in MEASURES if measure.name == "advantage")


class Cell(Struct, frozen=True, kw_only=True):
    """One call that the rollout sampled itself."""

    x: float
    number: int
    """Number of the call, from 1."""
    advantage: float | None
    """Mean advantage of the call's trained tokens; None if none was trained."""

    @property
    def tone(self) -> str:
        """Class of colour; empty if the advantage is not known."""
        return _ADVANTAGE.class_of(self.advantage)


class Row(Struct, frozen=True, kw_only=True):
    """One rollout of the tree."""

    rollout: Any
    """The row of `RolloutFacts.siblings`."""
    y: float
    cells: Sequence[Cell]
    num_borrowed: int
    """Number of calls that the rollout shares with its parent."""
    fork: str
    """SVG path: down from the parent's row at the fork; empty for a rollout that began with a reset."""
    x_start: float
    """Where its own calls begin."""
    x_end: float

    @property
    def pruned(self) -> bool:
        """True if the rollout was cancelled before its end."""
        return self.rollout.status == "cancelled"


class Tree(Struct, frozen=True, kw_only=True):
    """The tree of a group, ready to be drawn; lengths in pixels."""

    rows: Sequence[Row]
    trained: bool
    """True if a call of the group was trained."""
    left: float
    """Where the first call of a rollout begins."""
    cell_width: float
    width: float
    height: float


def tree_of(facts: RolloutFacts, credit: Mapping[int, Mapping[int, float]]) -> Tree:
    """Return the tree of a rollout's group.

    `credit` holds mean advantages by rollout and index of the call.
    """
    siblings = facts.siblings
    calls = {row.id: _num_calls(row, credit.get(row.id, {})) for row in siblings}
    width = min(MOST_CELL_WIDTH, MOST_WIDTH / max(*calls.values(), 1))
    ordered = list(_depth_first(siblings, None))
    places = {row.id: PITCH * (n + 0.5) for n, row in enumerate(ordered)}
    rows = [_row(row, calls[row.id], credit.get(row.id, {}), places, width) for row in ordered]
    right = max(row.x_end for row in rows)
    return Tree(
        rows=rows,
        trained=any(credit.values()),
        left=LEFT,
        cell_width=width,
        width=right + 2 * LEFT,
        height=PITCH * len(rows),
    )


def _num_calls(row: Any, advantages: Mapping[int, float]) -> int:
    borrowed = 0 if row.parent_id is None else row.parent_call + 1
    return max(row.turns or 0, borrowed, *(index + 1 for index in advantages), 0)


def _depth_first(siblings: Sequence[Any], parent_id: int | None) -> Iterator[Any]:
    """Yield each rollout before its children, the latest fork first: so no line crosses a cell."""
    children = [row for row in siblings if row.parent_id == parent_id]
    for row in sorted(children, key=lambda row: -(row.parent_call or 0)):
        yield row
        yield from _depth_first(siblings, row.id)


def _row(row: Any, num_calls: int, advantages: Mapping[int, float], places: Mapping[int, float], width: float) -> Row:
    borrowed = 0 if row.parent_id is None else row.parent_call + 1
    y, x_fork = places[row.id], LEFT + width * borrowed
    return Row(
        rollout=row,
        y=y,
        cells=[
            Cell(x=LEFT + width * index, number=index + 1, advantage=advantages.get(index))
            for index in range(borrowed, num_calls)
        ],
        num_borrowed=borrowed,
        fork="" if row.parent_id is None else f"M{x_fork:.1f} {places[row.parent_id]:.1f}V{y:.1f}",
        x_start=x_fork,
        x_end=LEFT + width * num_calls,
    )
