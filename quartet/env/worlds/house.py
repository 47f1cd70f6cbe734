"""The world `house`: carry a thing to another room through doors, as in BabyAI. All rooms have a door to the hall."""

import random

from quartet.env.performing import ActionFailedError
from quartet.env.worlds.base import Line, Move, World

ROOMS = ("attic", "cellar", "garage", "library", "studio")
THINGS = ("ball", "book", "box", "cup", "hat")
HALL, KEY = "hall", "key"


class House(World):
    """In an easy task the thing is in the hall. In a hard one it is in a room, and the door of the target room is
    locked; the key is in the hall.

    No move is final, so an episode without success lasts until the turn limit.
    """

    max_turns = 10

    def __init__(self, draw: random.Random, *, hard: bool) -> None:
        self._rooms = draw.sample(ROOMS, 3)
        self._thing, other = draw.sample(THINGS, 2)
        self._target, start = self._rooms[0], self._rooms[1] if hard else HALL
        self._places = {self._thing: start, other: self._rooms[2]} | ({KEY: HALL} if hard else {})
        self._locked = self._target if hard else ""
        self._doors = sorted(self._rooms)
        self._here, self._held = HALL, ""
        self.goal = f"Carry {self._thing} of {start} to {self._target}."

    def page(self) -> list[Line]:
        in_hall = self._here == HALL
        lines = [Line("heading", self._here), Line("text", f"holding {self._held or 'nothing'}")]
        if self._locked:
            lines.append(Line("text", f"locked {self._locked}"))
        lines += [Line("image", thing) for thing, place in self._places.items() if place == self._here]
        lines += [Line("link", room) for room in (self._doors if in_hall else [HALL])]
        return [*lines, Line("button", "put")] if self._held else lines

    def move(self, move: Move) -> bool | None:
        if move.name == "put":
            thing, self._held = self._held, ""
            self._places[thing] = self._here
            return True if (thing, self._here) == (self._thing, self._target) else None
        if move.name in (HALL, *self._rooms):
            self._go(move.name)
        elif self._held:
            raise ActionFailedError(f"holding {self._held}")
        else:
            self._held = move.name
            del self._places[move.name]
        return None

    def _go(self, room: str) -> None:
        """Go through a door. With the key, unlock a locked door instead, in which the key then stays."""
        if room != self._locked:
            self._here = room
        elif self._held == KEY:
            self._locked = self._held = ""
        else:
            raise ActionFailedError(f"{room} is locked")

    def right_move(self) -> Move:
        wanted = KEY if self._locked else self._thing
        if self._held and self._held != wanted:
            return Move("put")
        place = self._target if self._held else self._places[wanted]
        if self._here != place and not (self._held == KEY and self._here == HALL):
            return Move(place if self._here == HALL else HALL)
        if self._held:
            return Move("put") if wanted == self._thing else Move(self._target)
        return Move(wanted)
