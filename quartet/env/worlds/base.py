"""Interface of a small text world: its page, its moves, and the right move in every state."""

import random
from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple


class Line(NamedTuple):
    """One line of a page: an element, or a text."""

    kind: str
    """Kind of the element, such as `link`; `heading` or `text` for a line that is no element."""
    name: str
    """Name of the element, different from those of the page's other elements; the words of a text."""
    value: str = ""
    """Text typed into an `input`."""

    @property
    def is_element(self) -> bool:
        return self.kind not in ("heading", "text")


class Move(NamedTuple):
    """Use of one element of the page."""

    name: str
    text: str | None = None
    """Text typed into an `input`; None for a click on any other element."""


class World(ABC):
    """Rules and state of one task."""

    max_turns: ClassVar[int]
    """Turn limit, half of the last one that AgentGym-RL's ScalingInter has for its environment of this kind."""
    goal: str

    @abstractmethod
    def __init__(self, draw: random.Random, *, hard: bool) -> None:
        """Draw an easy or a hard task in its first state."""

    @abstractmethod
    def page(self) -> list[Line]:
        """Return the lines of the page in the present state."""

    @abstractmethod
    def move(self, move: Move) -> bool | None:
        """Make a move with an element of the page. Return whether the task is solved if this ends it, else None.

        Raise `ActionFailedError` for a move that is impossible in this state.
        """

    @abstractmethod
    def right_move(self) -> Move:
        """Return the next move of a shortest solution from the present state."""
