"""UI-S1's comparison of an action with the expert's: form, type, and agreement."""

from typing import NamedTuple

from quartet.actions.grammar import ActionError, parse_action
from quartet.types import Action, Keyboard, Pointer
from quartet.types.frame import Element, Place

FORMAT, TYPE, MATCH = 0.1, 0.4, 0.5
"""Rewards of an action that can be read, of one with the right type, and of one that agrees with the expert's."""


class Comparison(NamedTuple):
    """Result of a comparison. An action without the right form has no type, and one of another type does not agree."""

    readable: bool
    same_type: bool
    matches: bool

    @property
    def rewards(self) -> dict[str, float]:
        """The named parts of the turn's reward."""
        return {"format": FORMAT * self.readable, "type": TYPE * self.same_type, "match": MATCH * self.matches}


def compare(response: str, expert: str) -> Comparison:
    """Compare a response with the expert's action, both in Quartet's grammar.

    Two pointer actions agree if they name the same elements; labels are ignored. Two texts agree if they have the same
    place and one contains the other, without regard to case. All other actions agree if they are equal.
    """
    try:
        mine = parse_action(response)
    except ActionError:
        return Comparison(readable=False, same_type=False, matches=False)
    theirs = parse_action(expert)
    same_type = _type(mine) == _type(theirs)
    return Comparison(readable=True, same_type=same_type, matches=same_type and _agree(mine, theirs))


def _type(action: Action) -> tuple[type, str]:
    return type(action), action.gesture if isinstance(action, Pointer) else ""


def _agree(mine: Action, theirs: Action) -> bool:
    match mine, theirs:
        case Pointer(places=here), Pointer(places=there):
            return list(map(_target, here)) == list(map(_target, there)) and mine.scrolled == theirs.scrolled
        case Keyboard(text=said, keys=[], place=here), Keyboard(text=wanted, keys=[], place=there):
            said, wanted = said.lower(), wanted.lower()
            return _target(here) == _target(there) and bool(said) and (said in wanted or wanted in said)
    return mine == theirs


def _target(place: Place | None) -> Place | str | None:
    """Return the reference of an element, or another place itself."""
    return place.ref if isinstance(place, Element) else place
