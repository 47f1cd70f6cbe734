"""Targets of actions, each in a named coordinate frame.

The frame is part of the place because two numbers alone are ambiguous. `(500, 500)` is the middle of a screen of 1000
pixels, the middle of every screen in thousandths, and outside a smaller one.
"""

from msgspec import Struct


class Screen(Struct, frozen=True, tag="screen"):
    """Pixels of the original screenshot, from its upper left corner."""


class Resized(Struct, frozen=True, tag="resized"):
    """Pixels of the picture after the model's image processor resized it."""

    width: int
    height: int


class Unit(Struct, frozen=True, tag="unit"):
    """Fractions of the screen's width and height in units of 1/`parts`: 999 or 1000, as the model was trained."""

    parts: int


Frame = Screen | Resized | Unit


class Point(Struct, frozen=True, omit_defaults=True, tag="point"):
    """Two coordinates in a frame."""

    x: float
    y: float
    frame: Frame = Screen()


class Element(Struct, frozen=True, omit_defaults=True, tag="element"):
    """An element listed in the observation, by its reference and without coordinates."""

    ref: str
    label: str = ""


Place = Point | Element


def to_screen(point: Point, width: int, height: int) -> tuple[float, float]:
    """Return the position of a point on a screen of `width` by `height` pixels.

    The result is not rounded. The far edge of a frame maps to the far edge of the screen, one pixel past the last one.
    """
    across, down = _extent(point.frame, width, height)
    return point.x * width / across, point.y * height / down


def from_screen(x: float, y: float, frame: Frame, width: int, height: int) -> Point:
    """Return the point in `frame` at pixel `x`, `y` of a screen of `width` by `height` pixels."""
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
