"""Places that an action points at, each in a named coordinate frame.

The frame is a part of the place, because two numbers alone are the same in all of them: `(500, 500)` is the middle of a
screen of 1000 pixels, of every screen in thousandths, and nowhere on a small one.
"""

from msgspec import Struct


class Screen(Struct, frozen=True, tag="screen"):
    """Pixels of the screen as it was shown, from its upper left corner."""


class Resized(Struct, frozen=True, tag="resized"):
    """Pixels of the picture as the model saw it, after its image processor made it fit."""

    width: int
    height: int


class Unit(Struct, frozen=True, tag="unit"):
    """Parts of the screen's width and height, of which each has `parts`: 999 or 1000, as the model was taught."""

    parts: int


Frame = Screen | Resized | Unit


class Point(Struct, frozen=True, omit_defaults=True, tag="point"):
    """Two coordinates in a frame."""

    x: float
    y: float
    frame: Frame = Screen()


class Element(Struct, frozen=True, omit_defaults=True, tag="element"):
    """The frame without coordinates: an element that the observation listed, by its reference."""

    ref: str
    label: str = ""


Place = Point | Element


def to_screen(point: Point, width: int, height: int) -> tuple[float, float]:
    """Return where a point lies on a screen of `width` by `height` pixels.

    The result is not rounded, and the far edge of a frame is the far edge of the screen: one pixel beyond its last.
    """
    across, down = _extent(point.frame, width, height)
    return point.x * width / across, point.y * height / down


def from_screen(x: float, y: float, frame: Frame, width: int, height: int) -> Point:
    """Return the point in `frame` that lies at `x`, `y` on a screen of `width` by `height` pixels."""
    across, down = _extent(frame, width, height)
    return Point(x * across / width, y * down / height, frame)


def _extent(frame: Frame, width: int, height: int) -> tuple[int, int]:
    match frame:
        case Screen():
            return width, height
        case Resized():
            return frame.width, frame.height
        case Unit(parts):
            return parts, parts
