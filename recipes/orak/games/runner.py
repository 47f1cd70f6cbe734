"""A platform game on one line: walk on the ground, and get over the gaps."""

from .base import Game

STEPS = {"walk": 1, "jump": 2, "leap": 3}
"""Move -> number of cells; the cells between are passed in the air."""
LENGTH, SEEN = 30, 5


class Runner(Game):
    """Run to the flag; a gap ends the game. The score is the share of the way, as in Orak's Super Mario."""

    name = "runner"
    moves = tuple(STEPS)
    max_moves = 20

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.place = 0
        self.is_ground = [True]
        while len(self.is_ground) < LENGTH:
            gap = self.draw.choice([1, 2])
            self.is_ground += [True] * self.draw.choice([1, 2, 3]) + [False] * gap + [True]

    def board(self) -> str:
        ahead = range(self.place + 1, self.place + 1 + SEEN)
        return f"Ahead: {', '.join(self._cell(place) for place in ahead)}."

    def make(self, move: str) -> bool:
        place = min(self.place + STEPS[move], LENGTH)
        if self._cell(place) == "gap":
            return False
        self.place = place
        return place < LENGTH

    def score(self) -> float:
        return 100 * self.place / LENGTH

    def _cell(self, place: int) -> str:
        if place >= LENGTH:
            return "flag"
        return "ground" if self.is_ground[place] else "gap"
