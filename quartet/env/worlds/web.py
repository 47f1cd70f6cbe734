"""The world `web`: order an item of a shop. Sections link to items, and an item's page has the order form."""

import random

from quartet.env.worlds.base import Line, Move, World

ITEMS = {
    "kitchen": ("kettle", "plate", "spoon"),
    "garden": ("bench", "hose", "rake"),
    "office": ("desk", "lamp", "stapler"),
}
"""Items by section."""
NAMES = ("anna", "boris", "carla", "david", "emma", "felix")
TOWNS = ("athens", "bergen", "cairo", "delhi")


class Web(World):
    """An easy task begins in the item's section; a hard one begins at home, and its form has two fields.

    A wrong or incomplete order ends the episode without reward.
    """

    max_turns = 8

    def __init__(self, draw: random.Random, *, hard: bool) -> None:
        section = draw.choice(list(ITEMS))
        self._target = (section, draw.choice(ITEMS[section]))
        self._wanted = {"name": draw.choice(NAMES)} | ({"town": draw.choice(TOWNS)} if hard else {})
        self._order = {section: draw.sample(items, len(items)) for section, items in ITEMS.items()}
        self._filled = dict[str, str]()
        self._path: tuple[str, ...] = () if hard else (section,)
        self.goal = f"Order {self._target[1]} of {section} for {' of '.join(self._wanted.values())}."

    def page(self) -> list[Line]:
        if not self._path:
            return [Line("heading", "shop"), *(Line("link", section) for section in ITEMS)]
        if len(self._path) == 1:
            lines = [Line("link", item) for item in self._order[self._path[0]]]
        else:
            lines = [Line("input", field, self._filled.get(field, "")) for field in self._wanted]
            lines.append(Line("button", "send"))
        return [Line("heading", self._path[-1]), *lines, Line("link", "home")]

    def move(self, move: Move) -> bool | None:
        if move.text is not None:
            self._filled[move.name] = move.text
        elif move.name == "home":
            self._path = ()
            self._filled.clear()
        elif move.name == "send":
            return self._path == self._target and self._filled == self._wanted
        else:
            self._path = (*self._path, move.name)
        return None

    def right_move(self) -> Move:
        if self._path != self._target[: len(self._path)]:
            return Move("home")
        if self._path != self._target:
            return Move(self._target[len(self._path)])
        for field, text in self._wanted.items():
            if self._filled.get(field) != text:
                return Move(field, text)
        return Move("send")
