"""Targets of actions. A point has a named coordinate frame, because two numbers alone are ambiguous.

For example, `(500, 500)` in pixels is the middle of a screen 1000 pixels wide and high, and is outside a smaller
screen. In thousandths of the screen it is the middle of any screen.
"""

from msgspec import Struct


class Screen(Struct, frozen=True, tag="screen"):
    """Frame in pixels of the original screenshot. The origin of all frames is the upper left corner."""


class Resized(Struct, frozen=True, tag="resized"):
    """Frame in pixels of the picture after the model's image processor has resized it."""

    width: int
    height: int


class Unit(Struct, frozen=True, tag="unit"):
    """Frame in units of 1/`parts` of the screen's width and height. `parts` is 999 or 1000, depending on how the model
    was trained."""

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
