"""World of the experiments on turns: a chain of pages, each with one right button."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from benchmarks.learning_experiments.episode import Episode
from benchmarks.learning_experiments.table import logits_of
from benchmarks.learning_experiments.world import World
from quartet.types import Trajectory

MAX_WORDS = 128


@dataclass(frozen=True, kw_only=True)
class Chain(World):
    """The right button leads to the next page, and on the last page solves the task. The number of turns is limited."""

    pages: int
    turns: int
    buttons: int = 4
    wrong: Literal["stays", "back"] = "stays"
    """A wrong button leads to the same page, or to the one before."""
    slip: float = 0.0
    """Probability that a right button has no effect."""
    words: float = 0.0
    """Mean number of words after a press; they have no effect."""
    dense: bool = False
    """Reward the first visit of every page with an equal share, instead of the end with 1."""

    def logits(self) -> np.ndarray:
        rows: dict[int, dict[int, float]] = {}
        more = self.words / (1 + self.words)
        for page in range(self.pages):
            presses = [self.press(page, button) for button in range(self.buttons)]
            rows[page] = dict.fromkeys(presses, 1 / self.buttons)
            if self.words:
                words = {self._word(page): more, self._end: 1 - more}
                rows |= dict.fromkeys((*presses, self._word(page)), words)
        return logits_of(rows, self._end + 1)

    def play(self, episode: Episode, task: int) -> Trajectory:
        page = furthest = 0
        for _ in range(self.turns):
            episode.show(page)
            press = episode.respond(MAX_WORDS, {self._end})[0] if self.words else episode.respond()[0]
            if press == self.press(page, self.right(page)):
                page += episode.draw.random() >= self.slip
            elif self.wrong == "back":
                page = max(0, page - 1)
            solved = page == self.pages
            episode.reward((page > furthest) / self.pages if self.dense else float(solved))
            furthest = max(furthest, page)
            if solved:
                break
        return episode.end(success=furthest == self.pages)

    def right(self, page: int) -> int:
        """Return the right button of a page."""
        return (7 * page + 3) % self.buttons

    def press(self, page: int, button: int) -> int:
        """Return the token of a button of a page."""
        return self.pages + page * self.buttons + button

    @property
    def _end(self) -> int:
        return self.pages * (self.buttons + 2)

    def _word(self, page: int) -> int:
        return self.pages * (self.buttons + 1) + page
