"""A short game of 2048: slide the tiles of a board, and merge equal ones."""

from collections.abc import Sequence

from .base import Game

SIZE = 4
FOUR_SHARE = 0.1
"""Share of new tiles that are a 4, as in the original game."""
FULL = 128
"""Points of the full score: those of one tile 32 that is made of twos. Orak takes 20,000 points, for a whole game."""
Rows = list[list[int]]


class Twenty48(Game):
    """2048 with twenty moves; the score is the share of the points that a tile 32 is worth."""

    name = "2048"
    moves = ("left", "right", "up", "down")
    max_moves = 20

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.rows: Rows = [[0] * SIZE for _ in range(SIZE)]
        self.points = 0
        self._add_tile()
        self._add_tile()

    def board(self) -> str:
        return "\n".join(" ".join(str(tile) for tile in row) for row in self.rows)

    def make(self, move: str) -> bool:
        rows, points = slid(self.rows, move)
        if rows != self.rows:
            self.rows, self.points = rows, self.points + points
            self._add_tile()
        return any(slid(self.rows, one)[0] != self.rows for one in self.moves)

    def score(self) -> float:
        return 100 * min(self.points / FULL, 1.0)

    def _add_tile(self) -> None:
        free = [(y, x) for y in range(SIZE) for x in range(SIZE) if not self.rows[y][x]]
        y, x = self.draw.choice(free)
        self.rows[y][x] = 4 if self.draw.random() < FOUR_SHARE else 2


def merged(line: Sequence[int]) -> tuple[list[int], int]:
    """Return a line after a move towards its first cell, and the points: the sum of the merged tiles.

    A tile that was merged in this move is not merged again.

    >>> merged([2, 2, 2, 0])
    ([4, 2, 0, 0], 4)
    """
    left, tiles, points = [tile for tile in line if tile], list[int](), 0
    while left:
        tile = left.pop(0)
        if left[:1] == [tile]:
            tile += left.pop(0)
            points += tile
        tiles.append(tile)
    return tiles + [0] * (len(line) - len(tiles)), points


def slid(rows: Rows, move: str) -> tuple[Rows, int]:
    """Return the board after a move without the new tile, and the points."""
    lines = _turned(rows, move)
    results = [merged(line[::-1] if move in ("right", "down") else line) for line in lines]
    slid_lines = [line[::-1] if move in ("right", "down") else line for line, _ in results]
    return _turned(slid_lines, move), sum(points for _, points in results)


def _turned(rows: Rows, move: str) -> Rows:
    """Exchange rows and columns for a vertical move."""
    return [list(column) for column in zip(*rows, strict=True)] if move in ("up", "down") else rows
