"""Perform typed actions in a guest: one request with the constant program `performer.py` and the action as data."""

import json
from importlib.resources import files
from string import ascii_lowercase, digits, punctuation
from typing import Any

from quartet.actions.keyboard import KEYS, short_names
from quartet.env.desktop.bounds import scroll_steps
from quartet.env.desktop.elements import TEXT_FIELDS, Item
from quartet.env.desktop.objects import Window
from quartet.env.osworld.guest import Guest
from quartet.env.performing import ActionFailedError, on_screen, typed, wait_seconds
from quartet.errors import EnvError
from quartet.types import Action, Done, Infeasible, Keyboard, Pointer, Wait
from quartet.types.frame import Element, Place

PROGRAM = (files("quartet.env.osworld") / "performer.py").read_text()
_CLICKS = {
    "click": ("left", 1),
    "double_click": ("left", 2),
    "triple_click": ("left", 3),
    "right_click": ("right", 1),
    "middle_click": ("middle", 1),
}
_MOTIONS = {"press": "key", "down": "key_down", "up": "key_up"}
_ALL_KEYS = [*(name for key in KEYS for name in short_names(key)), *ascii_lowercase, *digits, *punctuation]
"""Every key that an action can hold."""
Points = list[tuple[float, float]]
Step = dict[str, Any]


class GuestHands:
    """Performer of actions in one guest."""

    def __init__(self, guest: Guest, width: int, height: int) -> None:
        self._guest, self._width, self._height = guest, width, height
        self.items: dict[str, Item] = {}
        """Elements that the last observation lists, by reference."""
        self._held_keys: list[str] = []
        self._holds_button = False

    async def perform(self, action: Action) -> Points:
        """Perform one action. Return its points in pixels. Raise `ActionFailedError` if the guest does not allow it."""
        points: Points = []
        match action:
            case Pointer(gesture="click", places=[Element(ref)]) if isinstance(self._target(ref), Window):
                title = self._target(ref).title
                await self._guest.setup("activate_window", {"window_name": title, "strict": True, "by_class": False})
            case Pointer(gesture=gesture, places=places) if len(places) <= (2 if gesture == "drag" else 1):
                points = [self._point(place) for place in places]
                await self._send(_pointed(action, points))
            case Keyboard(text="", keys=[_, *_], place=None, motion=motion):
                await self._send([{"do": _MOTIONS[motion], "keys": short_names(key)} for key in action.keys])
            case Keyboard(text=text, keys=[], motion="press"):
                points = [self._point(action.place)] if action.place else []
                await self._send(self._typed(action.place, points, text))
            case Wait(seconds=seconds):
                await self._send([{"do": "wait", "seconds": wait_seconds(seconds)}])
            case Done() | Infeasible():
                pass
            case _:
                raise ActionFailedError("not possible in this guest")
        return points

    async def release(self) -> None:
        """Release the keys and the button that actions have left down."""
        keys: list[Step] = [{"do": "key_up", "keys": self._held_keys}] if self._held_keys else []
        button: list[Step] = [{"do": "up"}] if self._holds_button else []
        if keys or button:
            await self._send([*keys, *button])

    async def release_all(self) -> None:
        """Release every key and button, also those that another session has left down in the guest."""
        await self._send([{"do": "release", "keys": _ALL_KEYS}])

    async def _send(self, steps: list[Step]) -> None:
        """Run the program once. An answer that is lost is an error, since the actions may have been performed."""
        for step in steps:  # what is pressed counts as down, also if the answer is lost
            self._holds_button |= step["do"] == "down"
            self._held_keys = [*self._held_keys, *(step["keys"] if step["do"] == "key_down" else [])]
        result = await self._guest.execute(["python3", "-c", PROGRAM, json.dumps(steps)])
        if result.returncode:
            raise EnvError(f"the guest could not perform an action: {result.error[-300:]}", "check PyAutoGUI there")
        for step in steps:
            self._holds_button &= step["do"] != "up"
            released = step["keys"] if step["do"] == "key_up" else []
            self._held_keys = [key for key in self._held_keys if key not in released]

    def _typed(self, place: Place | None, points: Points, text: str) -> list[Step]:
        if not all(char in "\n\t" or (char.isascii() and char.isprintable()) for char in typed(text)):
            raise ActionFailedError("text with a character that is on no key")
        steps: list[Step] = [{"do": "click", "button": "left", "count": 1, "x": x, "y": y} for x, y in points]
        if isinstance(place, Element) and self.items[place.ref].kind in TEXT_FIELDS:
            steps.append({"do": "key", "keys": ["ctrl", "a"]})
            if not text:  # typing replaces what is selected, but there is nothing to type
                steps.append({"do": "key", "keys": ["backspace"]})
        return [*steps, {"do": "type", "text": text}]

    def _point(self, place: Place) -> tuple[float, float]:
        if not isinstance(place, Element):
            return on_screen(place, self._width, self._height)
        if isinstance(self._target(place.ref), Window):
            raise ActionFailedError(f"[{place.ref}] is a window")
        return self.items[place.ref].middle

    def _target(self, ref: str) -> Any:
        if ref not in self.items:
            raise ActionFailedError(f"no element [{ref[:20]}]")
        return self.items[ref].target


def _pointed(action: Pointer, points: Points) -> list[Step]:
    """Return the steps of a gesture at its points."""
    at: Step = {"x": points[0][0], "y": points[0][1]} if points else {}
    match action.gesture:
        case "drag" if points:
            start = at if len(points) == 2 else {}
            return [{"do": "drag", **start, "to_x": points[-1][0], "to_y": points[-1][1]}]
        case "scroll":
            right, down = map(scroll_steps, action.scrolled)
            return [{"do": "scroll", **at, "right": right, "down": down}]
        case gesture if gesture in _CLICKS:
            button, count = _CLICKS[gesture]
            return [{"do": "click", **at, "button": button, "count": count}]
        case "move" | "down" | "up" as gesture:
            return [{"do": gesture, **at}]
        case "long_press":
            return [{"do": "down", **at}, {"do": "wait", "seconds": 0.6}, {"do": "up"}]
    raise ActionFailedError("a drag without an end")
