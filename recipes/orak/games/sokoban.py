"""A small Sokoban: push one box to its place."""

from .base import Game

SIZE = 5
STEPS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
PULLS, MIN_DISTANCE = 12, 2
Place = tuple[int, int]


class Sokoban(Game):
    """Push the box to its place in a room without inner walls. The score is the part of its way that is done."""

    name = "sokoban"
    moves = tuple(STEPS)
    max_moves = 20

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.box = self.goal = self.player = (0, 0)
        while self.distance < MIN_DISTANCE:
            self._begin()
        self._first_distance = self.distance

    @property
    def distance(self) -> int:
        """Smallest number of pushes that are left if nothing is in the way."""
        return abs(self.box[0] - self.goal[0]) + abs(self.box[1] - self.goal[1])

    def board(self) -> str:
        you = "both" if self.player == self.goal else "you"
        signs = {self.goal: "goal", self.player: you, self.box: "box"}
        return "\n".join(" ".join(signs.get((x, y), ".") for x in range(SIZE)) for y in range(SIZE))

    def make(self, move: str) -> bool:
        ahead, behind = _next(self.player, move), _next(_next(self.player, move), move)
        if _inside(ahead) and (ahead != self.box or _inside(behind)):
            self.player = ahead
            self.box = behind if ahead == self.box else self.box
        return self.distance > 0

    def score(self) -> float:
        return 100 * max(1 - self.distance / self._first_distance, 0.0)

    def _begin(self) -> None:
        """Go backwards from the end: step away from the box, mostly with the box. So it can be pushed to its place in
        at most `PULLS` moves."""
        self.goal = self.box = self._any_place()
        self.player = self._any_place()
        while self.player == self.box:
            self.player = self._any_place()
        for _ in range(PULLS):
            move = self.draw.choice(self.moves)
            place, x, y = _next(self.player, move), *STEPS[move]
            if not _inside(place) or place == self.box:
                continue
            if self.box == (self.player[0] - x, self.player[1] - y) and self.draw.random() < 0.8:
                self.box = self.player
            self.player = place

    def _any_place(self) -> Place:
        return self.draw.randrange(SIZE), self.draw.randrange(SIZE)


def _next(place: Place, move: str) -> Place:
    return place[0] + STEPS[move][0], place[1] + STEPS[move][1]


def _inside(place: Place) -> bool:
    return all(0 <= coordinate < SIZE for coordinate in place)
