"""The format `location_tokens`: every coordinate is one token, the number of a part of the screen's width or height."""

import re
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from quartet.actions.error import ActionError
from quartet.actions.format.base import ActionFormat, refuse
from quartet.config.section import Section
from quartet.types import Action, Pointer
from quartet.types.frame import Frame, Point, Unit, from_screen

MOST_PARTS = 1024
_TOKEN = r"<loc(\d{1,4}+)>"
_ACTION = re.compile(rf"(click|drag) {_TOKEN}{_TOKEN}(?:{_TOKEN}{_TOKEN})?+\s*+\Z")


class LocationTokens(ActionFormat):
    """A click or a drag, as in `click <loc12><loc40>`: parts of the width and height, from the upper left corner.

    A policy chooses a place in two tokens, and can learn which of them are neighbours. The point is the middle of the
    part.
    """

    class Settings(Section):
        parts: Annotated[int, Field(ge=2, le=MOST_PARTS)] = 64
        """Number of parts into which width and height are divided, which is the number of location tokens."""

    settings: Settings
    source = "Chen et al. 2022, Pix2seq: A Language Modeling Framework for Object Detection (coordinates as tokens)"

    def parse(self, text: str, picture: Frame) -> list[Action]:
        match = _ACTION.match(text.strip())
        if match is None:
            raise ActionError("not a click or a drag with location tokens")
        numbers = [int(number) for number in match.groups()[1:] if number is not None]
        if max(numbers) >= self.settings.parts:
            raise ActionError(f"there are {self.settings.parts} locations")
        gesture: Any = match[1]
        if len(numbers) != (4 if gesture == "drag" else 2):
            raise ActionError("a click has two coordinates, and a drag four")
        middles = [number + 0.5 for number in numbers]
        frame = Unit(self.settings.parts)
        places = [Point(x, y, frame) for x, y in zip(middles[::2], middles[1::2], strict=True)]
        return [Pointer(gesture=gesture, places=list(places))]

    def write(self, actions: Sequence[Action]) -> str:
        match actions:
            case [Pointer(gesture="click", places=[_], scrolled=(0, 0)) as action]:
                return f"click {self._tokens(action)}"
            case [Pointer(gesture="drag", places=[_, _], scrolled=(0, 0)) as action]:
                return f"drag {self._tokens(action)}"
        refuse(actions[0], "location_tokens")

    def _tokens(self, action: Pointer) -> str:
        """Return the tokens of an action's places. Raise `UnwritableError` unless each is the middle of a part."""
        numbers: list[float] = []
        for place in action.places:
            if not isinstance(place, Point) or place.frame != Unit(self.settings.parts):
                refuse(action, "location_tokens")
            numbers += [place.x - 0.5, place.y - 0.5]
        if any(number not in range(self.settings.parts) for number in numbers):
            refuse(action, "location_tokens")
        return "".join(f"<loc{int(number)}>" for number in numbers)


def middle_of_part(x: float, y: float, width: int, height: int, parts: int) -> Point:
    """Return the point that the format writes for pixel `x`, `y` of a screen: the middle of the part that it is in."""
    exact = from_screen(x, y, Unit(parts), width, height)
    across, down = (min(max(int(number), 0), parts - 1) + 0.5 for number in (exact.x, exact.y))
    return Point(across, down, exact.frame)


def location_tokens(parts: int) -> list[str]:
    """Return the location tokens of a format with so many parts, in order."""
    return [f"<loc{number}>" for number in range(parts)]
