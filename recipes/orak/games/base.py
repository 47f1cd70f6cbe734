"""Base of the games: a board, moves by name, and a score from 0 to 100."""

import random
from abc import ABC, abstractmethod
from typing import ClassVar


class Game(ABC):
    """Game for one player with a limited number of moves. The same seed and the same moves give the same game."""

    name: ClassVar[str]
    moves: ClassVar[tuple[str, ...]]
    """Names of all moves."""
    max_moves: ClassVar[int]
    """Number of moves after which the game is over."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(f"{self.name}/{seed}")
        self._moved = 0

    @abstractmethod
    def board(self) -> str:
        """Return what the player sees."""

    @abstractmethod
    def make(self, move: str) -> bool:
        """Make one of `moves`, and return whether the game goes on. A move that is blocked changes nothing."""

    @abstractmethod
    def score(self) -> float:
        """Return the score, from 0 to 100."""

    @property
    def over(self) -> bool:
        return self._moved >= self.max_moves

    def play(self, move: str) -> None:
        """Make a move and count it, also if it is blocked. Raise `ValueError` for an unknown move, which does not
        count, and after the end."""
        if self.over:
            raise ValueError("the game is over: answer done")
        if move not in self.moves:
            raise ValueError(f"no move {move[:20]!r}: play one of {', '.join(self.moves)}")
        self._moved = self._moved + 1 if self.make(move) else self.max_moves

    def text(self) -> str:
        """Return the board, and the moves that can be named or the end."""
        below = "The game is over." if self.over else f"Moves: {', '.join(self.moves)}."
        return f"{self.board()}\n{below}"
