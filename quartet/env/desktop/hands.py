"""Perform typed actions on a desktop, by events of its pointer and keyboard."""

import time
from collections.abc import Sequence

from quartet.actions.grammar import SELECT
from quartet.env.desktop.bounds import scroll_steps
from quartet.env.desktop.desktop import Desktop
from quartet.env.desktop.devices import LEFT, MIDDLE, RIGHT
from quartet.env.desktop.elements import TEXT_FIELDS, Item
from quartet.env.desktop.objects import Window
from quartet.env.performing import ActionFailedError, on_screen, typed, wait_seconds
from quartet.types import Action, Keyboard, Pointer, ToolCall, Wait
from quartet.types.frame import Element, Place

LONG_PRESS_SECONDS = 0.6
_CLICKS = {
    "click": (LEFT, 1),
    "double_click": (LEFT, 2),
    "triple_click": (LEFT, 3),
    "right_click": (RIGHT, 1),
    "middle_click": (MIDDLE, 1),
}
"""Button and number of clicks of the gestures that press and release at one place."""
_OPTIONS = ("menuitem", "option", "cell")
Points = list[tuple[float, float]]


class DesktopHands:
    """Performer of actions on one desktop. Each event is sent once."""

    def __init__(self, desktop: Desktop) -> None:
        self._desktop, self._devices = desktop, desktop.devices
        self._items: dict[str, Item] = {}

    def perform(self, action: Action, items: Sequence[Item]) -> Points:
        """Perform one action on the elements that are on the screen. Return its points in pixels.

        Raise `ActionFailedError` if the desktop does not allow it.
        """
        self._items = {str(item.ref): item for item in items}
        match action:
            case Pointer(gesture="drag", places=[_, *_]):
                return self._drag(action.places)
            case Pointer(places=[] | [_]) if action.gesture != "drag":
                return self._point_at(action)
            case Keyboard(text="", keys=[_, *_]):
                return self._press(action)
            case Keyboard(text=text, keys=[], motion="press"):
                return self._type(action.place, text)
            case ToolCall(name=name, arguments={"element": str(ref), "option": str(option)}) if name == SELECT:
                return self._select(Element(ref), option)
            case Wait(seconds=seconds):
                time.sleep(wait_seconds(seconds))
                return []
        raise ActionFailedError("not possible on a desktop")

    # --------------------------------------------------------------------------------------------------------- pointer

    def _point_at(self, action: Pointer) -> Points:
        points = [self._move(place) for place in action.places if not self._activated(place)]
        if action.places and not points:
            return []
        match action.gesture:
            case "scroll":
                self._devices.scroll(*(scroll_steps(distance) for distance in action.scrolled))
            case "down":
                self._devices.down()
            case "up":
                self._devices.up()
            case "long_press":
                self._devices.down()
                time.sleep(LONG_PRESS_SECONDS)
                self._devices.up()
            case gesture if gesture in _CLICKS:
                self._devices.click(*_CLICKS[gesture])
        return points

    def _activated(self, place: Place) -> bool:
        """Raise and focus a window that an action names. Return False for any other place."""
        target = self._item(place).target if isinstance(place, Element) else None
        if isinstance(target, Window) and isinstance(target.id, int):
            self._desktop.screen.activate(target.id)
        return isinstance(target, Window)

    def _drag(self, places: Sequence[Place]) -> Points:
        if len(places) > 2:
            raise ActionFailedError(f"drag at {len(places)} places")
        points = [self._point(place) for place in places]
        if len(points) == 2:
            self._devices.move(*points[0])
        self._devices.drag_to(*points[-1])
        return points

    def _move(self, place: Place) -> tuple[float, float]:
        point = self._point(place)
        self._devices.move(*point)
        return point

    # -------------------------------------------------------------------------------------------------------- keyboard

    def _press(self, action: Keyboard) -> Points:
        points = self._focus(action.place)
        for keys in action.keys:
            if not self._devices.key(keys, action.motion):
                raise ActionFailedError(f"no key {keys[:20]}")
        return points

    def _type(self, place: Place | None, text: str) -> Points:
        """Replace the text of a field, or type where the focus is."""
        if not self._devices.can_type(typed(text)):
            raise ActionFailedError("text with a control character")
        points = self._focus(place)
        if isinstance(place, Element) and self._item(place).kind in TEXT_FIELDS:
            self._devices.key("Control+a")
            if not text:  # typing replaces what is selected, but there is nothing to type
                self._devices.key("Backspace")
        self._devices.type(text)
        return points

    def _focus(self, place: Place | None) -> Points:
        """Click the place of an input and wait until the window manager has moved the focus."""
        if place is None:
            return []
        points = self._point_at(Pointer(gesture="click", places=[place]))
        self._desktop.settle()
        return points

    # ---------------------------------------------------------------------------------------------------------- places

    def _select(self, element: Element, option: str) -> Points:
        """Open a list and click one of its options."""
        points = self._point_at(Pointer(gesture="click", places=[element]))
        self._desktop.settle()
        for item in self._desktop.listing().items:
            if item.kind in _OPTIONS and item.label == option:
                self._items[str(item.ref)] = item
                return points + self._point_at(Pointer(gesture="click", places=[Element(str(item.ref))]))
        self._devices.key("Escape")
        raise ActionFailedError(f"could not select in [{element.ref}]")

    def _point(self, place: Place) -> tuple[float, float]:
        if not isinstance(place, Element):
            return on_screen(place, self._desktop.screen.width, self._desktop.screen.height)
        item = self._item(place)
        if isinstance(item.target, Window):
            raise ActionFailedError(f"[{place.ref}] is a window")
        return item.middle

    def _item(self, element: Element) -> Item:
        if element.ref not in self._items:
            raise ActionFailedError(f"no element [{element.ref[:20]}]")
        return self._items[element.ref]
