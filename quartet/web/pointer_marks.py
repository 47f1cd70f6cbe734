"""Marks of a turn's actions on the picture of the screen: where the pointer clicked, dragged and scrolled."""

from collections.abc import Iterable

from msgspec import Struct

from quartet.types import Outcome, Pointer, TakenAction
from quartet.types.frame import Frame, Point, Resized, Screen, Unit

_WORDS = {
    "move": "moved to",
    "double_click": "double-clicked at",
    "triple_click": "triple-clicked at",
    "right_click": "right-clicked at",
    "middle_click": "middle-clicked at",
    "long_press": "pressed long at",
    "down": "pressed at",
    "up": "released at",
}
"""Gestures in captions; any other one is `clicked at`."""
_NOT_DONE = (Outcome.PARSE_ERROR, Outcome.REFUSED, Outcome.ENDED)


class Mark(Struct, frozen=True, kw_only=True):
    """Pointer action on a picture."""

    gesture: str
    """Gesture as in `quartet.types.Pointer`. An action on an element, such as typing into a field, is a click."""
    points: list[tuple[float, float]]
    """Position of the pointer; of a drag both ends. In pixels of the picture, or in units of `frame`."""
    scrolled: tuple[float, float] = (0.0, 0.0)
    """Wheel steps to the right and down."""
    frame: tuple[int, int] | None = None
    """Width and height of the picture in the units of `points`; None for pixels."""
    done: bool = True
    """False if the environment did not carry out the action, so that the pointer did not move."""

    @property
    def words(self) -> str:
        """Caption of the mark."""
        places = [f"({x:.0f}, {y:.0f})" for x, y in self.points]
        units = f" of {self.frame[0]} × {self.frame[1]}" if self.frame else ""
        return f"{'' if self.done else 'not done: '}{self._gesture(places)}{units}"

    def _gesture(self, places: list[str]) -> str:
        if len(places) == 2:
            return f"dragged from {places[0]} to {places[1]}"
        if self.gesture == "scroll":
            return f"scrolled {_direction(*self.scrolled)} at {places[0]}"
        return f"{_WORDS.get(self.gesture, 'clicked at')} {places[0]}"


def marks_of(actions: Iterable[TakenAction]) -> list[Mark]:
    """Return the marks of those actions whose position is known, in order."""
    return [mark for action in actions if (mark := _mark(action))]


def _mark(taken: TakenAction) -> Mark | None:
    action = taken.action if isinstance(taken.action, Pointer) else None
    gesture = action.gesture if action else "drag" if len(taken.points) == 2 else "click"
    scrolled = action.scrolled if action else (0.0, 0.0)
    done = taken.outcome not in _NOT_DONE
    if taken.points:
        return Mark(gesture=gesture, points=taken.points, scrolled=scrolled, done=done)
    named = [place for place in action.places if isinstance(place, Point)] if action else []
    frames = {point.frame for point in named}
    if len(frames) != 1:  # no point, or an element at one end
        return None
    points = [(point.x, point.y) for point in named]
    return Mark(gesture=gesture, points=points, scrolled=scrolled, frame=_size(frames.pop()), done=done)


def _size(frame: Frame) -> tuple[int, int] | None:
    match frame:
        case Screen():
            return None
        case Resized():
            return frame.width, frame.height
        case Unit(parts):
            return parts, parts


def _direction(right: float, down: float) -> str:
    if abs(right) > abs(down):
        return "right" if right > 0 else "left"
    return "down" if down >= 0 else "up"
