"""The world `lab`: prepare a substance, measure it and answer the colour, as in the experiments of SciWorld."""

import random

from quartet.env.performing import ActionFailedError
from quartet.env.worlds.base import Line, Move, World

SUBSTANCES = ("acid", "salt", "water")
TREATMENTS = ("cool", "dry", "heat", "mix")
COLOURS = ("blue", "pink", "red")


class Lab(World):
    """The goal names the treatments of the substance in their order: one in an easy task, all four in a hard one.

    A treatment that was wrong cannot be taken back; `clean` empties the glass. The colour shows only after the right
    treatments. An answer that is wrong, or not measured, ends the episode without reward.
    """

    max_turns = 15

    def __init__(self, draw: random.Random, *, hard: bool) -> None:
        self._wanted = [draw.choice(SUBSTANCES), *draw.sample(TREATMENTS, 4 if hard else 1)]
        self._colour = draw.choice(COLOURS)
        self._glass, self._shown = list[str](), ""
        self.goal = f"Measure {' '.join(self._wanted)}, and answer the colour."

    def page(self) -> list[Line]:
        names = (*SUBSTANCES, *TREATMENTS, "clean", "measure", *COLOURS)
        glass = " ".join(self._glass) or "empty"
        texts = [Line("text", f"glass {glass}"), *([Line("text", f"shows {self._shown}")] if self._shown else [])]
        return [*texts, *(Line("button", name) for name in names)]

    def move(self, move: Move) -> bool | None:
        name, shown = move.name, self._shown
        if name in COLOURS:
            return name == shown
        if name in SUBSTANCES and self._glass:
            raise ActionFailedError("the glass is full")
        if name not in SUBSTANCES and not self._glass:
            raise ActionFailedError("the glass is empty")
        self._shown = ""
        if name == "clean":
            self._glass = []
        elif name == "measure":
            self._shown = self._colour if self._glass == self._wanted else "nothing"
        else:
            self._glass.append(name)
        return None

    def right_move(self) -> Move:
        done = len(self._glass)
        if self._glass != self._wanted[:done]:
            return Move("clean")
        if done < len(self._wanted):
            return Move(self._wanted[done])
        return Move(self._colour if self._shown == self._colour else "measure")
