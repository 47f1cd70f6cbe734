"""Perform actions on a page by input events: locate the element, move the mouse, press, type.

The scripts `observe.js` and `act.js` return positions on the page and change nothing but its scroll positions.
"""

import asyncio
import json
from importlib.resources import files
from typing import Any

from quartet.actions.grammar import SELECT
from quartet.actions.keyboard import MODIFIER_BITS, parts_of
from quartet.env.page import Button, Page
from quartet.env.performing import MAX_TYPED_CHARACTERS, ActionFailedError, on_screen, typed, wait_seconds
from quartet.types import Action, Done, Infeasible, Keyboard, Pointer, Text, ToolCall, Wait
from quartet.types.frame import Element, Place, Point

HARNESS = ";".join((files("quartet.env") / name).read_text() for name in ("observe.js", "act.js"))
"""Script for a page's isolated world, with functions to read the page and to locate elements."""


def watching(answers: str = "{}") -> str:
    """Return the script that runs among the page's own scripts and answers the harness; `answers` is JavaScript."""
    return f"({(files('quartet.env') / 'watch.js').read_text()})({answers})"


LONG_PRESS_SECONDS = 0.6

TWO_FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""JavaScript promise that resolves after two frames: the browser delivers wheel events with the next frame."""

_CLICKS: dict[str, tuple[Button, int]] = {
    "click": ("left", 1),
    "double_click": ("left", 2),
    "triple_click": ("left", 3),
    "right_click": ("right", 1),
    "middle_click": ("middle", 1),
}
"""Button and number of clicks of the gestures that press and release at one place."""


class Hands:
    """Performer of actions on one page."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._points: list[tuple[float, float]] = []
        self._held: list[str] = []
        """Keys that are down, in the order in which they were pressed."""
        self._copied = ""

    async def perform(self, action: Action) -> list[tuple[float, float]]:
        """Perform one action. Return its points in pixels: one for a click, both ends of a drag, none for keys.

        Raise `ActionFailedError` if the page does not allow it, `EnvError` if the page fails.
        """
        self._points = []
        match action:
            case Pointer():
                await self._gesture(action)
            case Keyboard(text="", keys=[_, *_]):
                await self._press(action)
            case Keyboard(text=text, keys=[], motion="press"):
                await self._type(action.place, text)
            case ToolCall(name=name, arguments={"element": str(ref), "option": str(option)}) if name == SELECT:
                await self._select(_number(ref), option)
            case Wait(seconds=seconds):
                await asyncio.sleep(wait_seconds(seconds))
            case Done() | Infeasible():
                pass
            case ToolCall(name=name):
                raise ActionFailedError(f"no tool {name[:40]}")
            case Keyboard() | Text():
                raise ActionFailedError("not possible on a page")
        return self._points

    async def release(self) -> None:
        """Release the keys and the mouse button that are down."""
        while self._held:
            await self._page.key_up(self._held.pop(), modifiers=self._modifiers)
        if self._page.button_down:
            await self._page.mouse_up()

    @property
    def _modifiers(self) -> int:
        return sum(MODIFIER_BITS.get(key, 0) for key in self._held)

    # --------------------------------------------------------------------------------------------------------- pointer

    async def _gesture(self, action: Pointer) -> None:
        page, places, modifiers = self._page, action.places, self._modifiers
        if len(places) > (2 if action.gesture == "drag" else 1) or (action.gesture == "drag" and not places):
            raise ActionFailedError(f"{action.gesture} at {len(places)} places")
        if action.gesture == "drag":
            await self._drag(places)
            return
        x, y = self._pointed(await self._point(places[0])) if places else page.pointer
        if action.gesture == "scroll":
            await page.wheel(x, y, *action.scrolled, modifiers=modifiers)
            await page.ask(TWO_FRAMES)
            return
        if action.gesture in _CLICKS:
            button, count = _CLICKS[action.gesture]
            if action.gesture == "click" and places and await self._adds(places[0]):
                modifiers |= MODIFIER_BITS["Control"]
            await page.click(x, y, modifiers=modifiers, button=button, count=count)
            return
        await page.move(x, y, modifiers=modifiers)
        if action.gesture in ("down", "long_press"):
            await page.mouse_down(modifiers=modifiers)
        if action.gesture == "long_press":
            await asyncio.sleep(LONG_PRESS_SECONDS)
        if action.gesture in ("up", "long_press"):
            await page.mouse_up(modifiers=modifiers)

    async def _drag(self, places: list[Place]) -> None:
        if len(places) == 1:
            start, end = self._page.pointer, self._pointed(await self._point(places[0]))
            await self._page.drag(start, end, modifiers=self._modifiers)
            return
        # Locating an end may scroll the page, so the first end is located again after the second.
        await self._point(places[0])
        there = await self._point(places[1])
        start, end = self._pointed(await self._point(places[0])), self._pointed(there)
        await self._page.drag(start, end, modifiers=self._modifiers)

    async def _adds(self, place: Place) -> bool:
        """Return whether a click on the place adds to a multiple choice."""
        return isinstance(place, Element) and await self._ask("adds", _number(place.ref))

    # -------------------------------------------------------------------------------------------------------- keyboard

    async def _press(self, action: Keyboard) -> None:
        if action.place is not None:
            await self._page.click(*self._pointed(await self._point(action.place)))
        if action.motion == "press":
            for key in action.keys:
                await self._press_key(key)
            return
        keys = [part for key in action.keys for part in parts_of(key)]
        for key in keys if action.motion == "down" else reversed(keys):
            if action.motion == "down" and key not in self._held:
                self._held.append(key)
                await self._page.key_down(key, modifiers=self._modifiers)
            elif action.motion == "up" and key in self._held:
                self._held.remove(key)
                await self._page.key_up(key, modifiers=self._modifiers)

    async def _press_key(self, key: str) -> None:
        """Press and release one key. Text is pasted from a clipboard of this page's own: all pages of a browser share
        one, so that a policy would paste what another one has copied."""
        shortcut = "+".join([*self._held, key])
        if shortcut == "Control+v":
            await self._page.insert(self._copied)
            return
        if shortcut in ("Control+c", "Control+x"):
            self._copied = (await self._ask("selected"))[:MAX_TYPED_CHARACTERS]
        await self._page.press(key, modifiers=self._modifiers)

    async def _type(self, place: Place | None, text: str) -> None:
        text = typed(text)
        if isinstance(place, Element):
            await self._fill(_number(place.ref), text)
            return
        if place is not None:
            await self._page.click(*self._pointed(await self._point(place)))
        await self._page.type(text)

    async def _fill(self, ref: int, text: str) -> None:
        """Replace the text of a field."""
        place = await self._locate("locateField", ref)
        await self._page.click(*self._pointed((place["x"], place["y"])))
        field = await self._ask("field", ref)
        if not field["ready"]:
            return  # The click changed the page, for example by a popup; the observation shows it.
        if field["filled"]:
            await self._page.press("Control+a", "Backspace")
        await self._page.type(text)

    async def _select(self, ref: int, option: str) -> None:
        place = await self._locate("locateOption", ref, option)
        here = place["x"], place["y"]
        if "keys" in place:
            await self._page.click(*self._pointed(here))
            await self._page.press(*place["keys"])
        elif not place["chosen"]:
            await self._page.click(*self._pointed(here), modifiers=MODIFIER_BITS["Control"] if place["adds"] else 0)
        if not await self._ask("chose", ref, option):
            raise ActionFailedError(f"could not select in [{ref}]")

    # ---------------------------------------------------------------------------------------------------------- places

    def _pointed(self, point: tuple[float, float]) -> tuple[float, float]:
        self._points.append(point)
        return point

    async def _point(self, place: Place) -> tuple[float, float]:
        if isinstance(place, Point):
            return on_screen(place, self._page.width, self._page.height)
        found = await self._locate("locate", _number(place.ref))
        return found["x"], found["y"]

    async def _locate(self, function: str, *arguments: Any) -> dict[str, Any]:
        place = await self._ask(function, *arguments)
        if "error" in place:
            raise ActionFailedError(place["error"])
        return place

    async def _ask(self, function: str, *arguments: Any) -> Any:
        values = ", ".join(json.dumps(argument) for argument in arguments)
        return await self._page.ask(f"quartet.{function}({values})")


def _number(ref: str) -> int:
    """Return the number of an element of a page. Raise `ActionFailedError` if the reference is not a number."""
    if not ref.isdecimal() or len(ref) > 6:
        raise ActionFailedError(f"no element [{ref[:20]}]")
    return int(ref)
