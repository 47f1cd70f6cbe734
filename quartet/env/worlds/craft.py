"""The world `craft`: gather materials and craft an item from them, as in TextCraft."""

import random
from collections.abc import Iterator

from quartet.env.performing import ActionFailedError
from quartet.env.worlds.base import Line, Move, World

SIMPLE = {
    "rope": ("reed", "wax"),
    "blade": ("iron", "stone"),
    "cloth": ("dye", "wool"),
    "brick": ("clay", "sand"),
}
COMPOUND = {
    "knife": ("blade", "rope"),
    "tent": ("cloth", "rope"),
    "kiln": ("brick", "blade"),
    "bag": ("cloth", "blade"),
    "wall": ("brick", "rope"),
    "rug": ("cloth", "brick"),
}
RECIPES = SIMPLE | COMPOUND
"""Ingredients by item; all other ingredients are materials, which are gathered."""
MATERIALS = sorted({material for ingredients in SIMPLE.values() for material in ingredients})


class Craft(World):
    """An easy item has two materials; a hard one has two items of two materials each.

    Crafting uses the ingredients up. No move is final, so an episode without success lasts until the turn limit.
    """

    max_turns = 15

    def __init__(self, draw: random.Random, *, hard: bool) -> None:
        self._target = draw.choice(list(COMPOUND if hard else SIMPLE))
        needed = list(_parts(self._target))
        others = [material for material in MATERIALS if material not in needed]
        self._buttons = draw.sample([*needed, *draw.sample(others, 2)], len(needed) + 2)
        self._texts = [Line("text", f"{item} needs {' '.join(RECIPES[item])}") for item in needed if item in RECIPES]
        self._have = set[str]()
        self.goal = f"Craft {self._target}."

    def page(self) -> list[Line]:
        have = Line("text", f"have {' '.join(sorted(self._have)) or 'nothing'}")
        return [*self._texts, have, *(Line("button", name) for name in self._buttons)]

    def move(self, move: Move) -> bool | None:
        ingredients = {*RECIPES.get(move.name, ())}
        if missing := sorted(ingredients - self._have):
            raise ActionFailedError(f"{move.name} needs {' '.join(missing)}")
        self._have = self._have - ingredients | {move.name}
        return True if move.name == self._target else None

    def right_move(self) -> Move:
        return Move(self._next(self._target))

    def _next(self, item: str) -> str:
        """Return the next move towards an item that is not at hand."""
        missing = [part for part in RECIPES.get(item, ()) if part not in self._have]
        return self._next(missing[0]) if missing else item


def _parts(item: str) -> Iterator[str]:
    """Yield the item and all that it is made of."""
    yield item
    for part in RECIPES.get(item, ()):
        yield from _parts(part)
