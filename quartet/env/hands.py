"""Perform actions on a page by input events: locate the element, move the mouse, press, type.

The scripts `observe.js` and `act.js` return positions on the page and change nothing.
"""

import json
from importlib.resources import files
from typing import Any

from quartet.actions.grammar import (
    Action,
    Click,
    Done,
    Drag,
    Element,
    Infeasible,
    Key,
    Point,
    Scroll,
    Select,
    Target,
    Type,
)
from quartet.actions.keyboard import MODIFIER_BITS
from quartet.env.page import Page

HARNESS = ";".join((files("quartet.env") / name).read_text() for name in ("observe.js", "act.js"))
"""Script for a page's isolated world, with functions to read the page and to locate elements."""


def watching(answers: str = "{}") -> str:
    """Return the script that runs among the page's own scripts and answers the harness; `answers` is JavaScript."""
    return f"({(files('quartet.env') / 'watch.js').read_text()})({answers})"


MAX_TYPED_CHARACTERS = 1000
"""Maximum length of a typed text. A key takes about a millisecond, and typing must end within the step's time limit."""

TWO_FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""JavaScript promise that resolves after two frames: the browser delivers wheel events with the next frame."""


class ActionFailedError(Exception):
    """The action is impossible on this page. The message is part of an observation's text, so it is short, and a change
    of it is a change of `observation_format`."""


class Hands:
    """Performer of actions on one page."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._points: list[tuple[float, float]] = []

    async def perform(self, action: Action) -> list[tuple[float, float]]:
        """Perform one action. Return its points in pixels: one for a click, both ends of a drag, none for keys.

        Raise `ActionFailedError` if the page does not allow it, `EnvError` if the page fails.
        """
        self._points = []
        await self._perform(action)
        return self._points

    async def _perform(self, action: Action) -> None:
        match action:
            case Click(target):
                await self._click(target)
            case Type(target, text):
                await self._type(target.ref, text)
            case Key(keys):
                await self._page.press(keys)
            case Select(target, option):
                await self._select(target.ref, option)
            case Scroll(direction):
                middle = self._page.width / 2, self._page.height / 2
                await self._page.wheel(*middle, steps=1 if direction == "down" else -1)
                await self._page.ask(TWO_FRAMES)
            case Drag(start, end):
                # Locating an end may scroll the page, so the first end is located again after the second.
                await self._point(start)
                there = await self._point(end)
                await self._page.drag(self._pointed(await self._point(start)), self._pointed(there))
            case Done() | Infeasible():
                return

    async def _click(self, target: Target) -> None:
        x, y = self._pointed(await self._point(target))
        adds = isinstance(target, Element) and await self._ask("adds", target.ref)
        await self._page.click(x, y, modifiers=MODIFIER_BITS["Control"] if adds else 0)

    async def _type(self, ref: int, text: str) -> None:
        if len(text) > MAX_TYPED_CHARACTERS:
            raise ActionFailedError(f"text longer than {MAX_TYPED_CHARACTERS} characters")
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

    def _pointed(self, point: tuple[float, float]) -> tuple[float, float]:
        self._points.append(point)
        return point

    async def _point(self, target: Target) -> tuple[float, float]:
        if isinstance(target, Point):
            if target.x >= self._page.width or target.y >= self._page.height:
                raise ActionFailedError(f"outside the page ({target.x},{target.y})")
            return target.x, target.y
        place = await self._locate("locate", target.ref)
        return place["x"], place["y"]

    async def _locate(self, function: str, *arguments: Any) -> dict[str, Any]:
        place = await self._ask(function, *arguments)
        if "error" in place:
            raise ActionFailedError(place["error"])
        return place

    async def _ask(self, function: str, *arguments: Any) -> Any:
        values = ", ".join(json.dumps(argument) for argument in arguments)
        return await self._page.ask(f"quartet.{function}({values})")
