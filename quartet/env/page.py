"""One page of the browser: scripts, pictures and real input events.

All input goes through the browser's own input pipeline, so scripts of the page see trusted events, and hit testing,
focus and key handling are those of a user's input. Coordinates are CSS pixels from the upper left corner of the page's
viewport.
"""

import asyncio
import base64
from contextlib import suppress
from typing import Any, Literal

from quartet.actions.keyboard import MODIFIER_BITS, Stroke, character_stroke, shifted, strokes
from quartet.env.cdp import CALL_TIMEOUT_SECONDS, Connection, Event, PageFaultError, Session
from quartet.errors import EnvError
from quartet.types.action import WHEEL_PIXELS

DRAG_STEPS = 5
Button = Literal["left", "right", "middle"]
BUTTON_BITS = {"left": 1, "right": 2, "middle": 4}


class Page:
    """One page. Calls raise `EnvError` if the page crashed, the browser is gone, or the answer times out."""

    def __init__(self, connection: Connection, session: Session, target_id: str) -> None:
        self._connection = connection
        self.session = session
        """Session of the page in the browser's DevTools protocol."""
        self._target_id = target_id  # also the id of the page's main frame
        self._frame_id = ""  # of the newest frame of the page's own document
        self._world_id = 0
        self.width, self.height = 0, 0
        self.pointer = (0.0, 0.0)
        """Position of the mouse; the middle of the page until the first event."""
        self.button_down = False
        """True while the left button is down."""
        self.left = False
        """True once the document that `isolate` chose was replaced."""

    async def prepare(self, width: int, height: int) -> None:
        """Set the page's size and focus. `Browser.new_page` calls this once."""
        self.width, self.height = width, height
        self.center_pointer()
        session = self.session
        session.on("Inspector.targetCrashed", lambda _: session.fail("the page crashed"))
        session.on("Inspector.detached", lambda _: session.fail("the page was closed"))
        session.on("Page.javascriptDialogOpening", self._accept_dialog)
        session.on("Page.frameAttached", self._frame_attached)
        session.on("Page.frameNavigated", self._frame_navigated)
        # `Runtime` and `Log` stay disabled: their events carry everything that a page logs, and are not used.
        await session.call("Page.enable")
        await session.call("Inspector.enable")
        await session.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        # Emulate keyboard focus in every page, so that focus events fire in all of them at once.
        await session.call("Emulation.setFocusEmulationEnabled", enabled=True)

    @property
    def dead(self) -> str:
        """Reason why the page cannot be used any more; empty while it can be used."""
        return self.session.dead

    async def navigate(self, url: str) -> None:
        """Load a URL and wait for its load event."""
        loaded = self.session.expect("Page.loadEventFired")
        answer = await self.session.call("Page.navigate", url=url)
        if problem := answer.get("errorText"):
            loaded.cancel()
            raise EnvError(f"cannot load {url}: {problem}")
        await loaded

    async def isolate(self, *, in_frame: bool = False) -> None:
        """Make a new isolated world for `ask`. The world shares the document with the page's own scripts, but no
        objects, so these scripts cannot replace anything that `ask` reads.

        The world belongs to the document of the page, or of its newest frame, and ends with that document.
        """
        frame_id = self._frame_id if in_frame else self._target_id
        answer = await self.session.call("Page.createIsolatedWorld", frameId=frame_id, worldName="quartet")
        self._world_id = answer["executionContextId"]
        self.left = False

    async def was_left(self) -> bool:
        """Return `left` after handling all events that the browser has sent so far."""
        await self.evaluate("0")
        return self.left

    async def ask(self, expression: str, *, timeout_seconds: float = CALL_TIMEOUT_SECONDS) -> Any:
        """Evaluate a JavaScript expression in the isolated world. Raise `EnvError` also if its document is gone."""
        return await self._evaluate(expression, timeout_seconds, contextId=self._world_id)

    async def evaluate(self, expression: str, *, timeout_seconds: float = CALL_TIMEOUT_SECONDS) -> Any:
        """Evaluate a JavaScript expression among the page's own scripts, awaiting a promise; return its value.

        Raise `PageFaultError` if it throws.
        """
        return await self._evaluate(expression, timeout_seconds)

    async def _evaluate(self, expression: str, timeout_seconds: float, **where: int) -> Any:
        answer = await self.session.call(
            "Runtime.evaluate",
            expression=expression,
            awaitPromise=True,
            returnByValue=True,
            timeout_seconds=timeout_seconds,
            **where,
        )
        if problem := answer.get("exceptionDetails"):
            text = problem.get("exception", {}).get("description") or problem.get("text")
            raise PageFaultError(f"script {expression[-60:]!r} failed: {text}")
        return answer["result"].get("value")

    async def screenshot(self) -> bytes:
        """Return the viewport as JPEG. The viewport has the size of the picture, since clipping would take five times
        as long."""
        answer = await self.session.call("Page.captureScreenshot", format="jpeg", quality=80)
        return base64.b64decode(answer["data"])

    async def collect_garbage(self) -> None:
        """Free the objects that the page's scripts, and those of its former documents, no longer reach."""
        await self.session.call("HeapProfiler.collectGarbage")

    def center_pointer(self) -> None:
        """Set the position for gestures without a place to the middle of the page, where an X server's pointer
        begins."""
        self.pointer = self.width / 2, self.height / 2

    async def click(self, x: float, y: float, *, modifiers: int = 0, button: Button = "left", count: int = 1) -> None:
        """Move the mouse to the point, press and release `count` times."""
        clicks = [(kind, x, y, number) for number in range(1, count + 1) for kind in ("mousePressed", "mouseReleased")]
        await self._mouse([("mouseMoved", x, y, 0), *clicks], modifiers, button)

    async def move(self, x: float, y: float, *, modifiers: int = 0) -> None:
        """Move the mouse to the point."""
        await self._mouse([("mouseMoved", x, y, 0)], modifiers)

    async def mouse_down(self, *, modifiers: int = 0) -> None:
        """Press the left button where the mouse is, until `mouse_up`."""
        await self._mouse([("mousePressed", *self.pointer, 1)], modifiers)

    async def mouse_up(self, *, modifiers: int = 0) -> None:
        """Release the left button where the mouse is."""
        await self._mouse([("mouseReleased", *self.pointer, 1)], modifiers)

    async def drag(self, start: tuple[float, float], end: tuple[float, float], *, modifiers: int = 0) -> None:
        """Press at `start`, move to `end` in `DRAG_STEPS` steps, release."""
        events = [("mouseMoved", *start, 0), ("mousePressed", *start, 1)]
        for step in range(1, DRAG_STEPS + 1):
            x, y = (here + (there - here) * step / DRAG_STEPS for here, there in zip(start, end, strict=True))
            events.append(("mouseMoved", x, y, 0))
        await self._mouse([*events, ("mouseReleased", *end, 1)], modifiers)

    async def wheel(self, x: float, y: float, right: float, down: float, *, modifiers: int = 0) -> None:
        """Turn the mouse wheel over a point, by steps to the right and down."""
        self.pointer = x, y
        delta = {"deltaX": right * WHEEL_PIXELS, "deltaY": down * WHEEL_PIXELS}
        await self.session.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, modifiers=modifiers, **delta)

    async def press(self, *keys: str, modifiers: int = 0) -> None:
        """Press and release keys one after the other, by canonical name (`Enter`, `Control+a`). `modifiers` are keys
        that are already down."""
        pressed = ((stroke, bits | modifiers) for stroke, bits in map(strokes, keys))
        await self._strike([(stroke, bits, motion) for stroke, bits in pressed for motion in ("down", "up")])

    async def key_down(self, key: str, *, modifiers: int = 0) -> None:
        """Press a key until `key_up`."""
        await self._strike([(strokes(key)[0], modifiers, "down")])

    async def key_up(self, key: str, *, modifiers: int = 0) -> None:
        """Release a key."""
        await self._strike([(strokes(key)[0], modifiers, "up")])

    async def type(self, text: str) -> None:
        """Type text into the focused element, one key per character."""
        keys = map(character_stroke, text)
        await self._strike([(stroke, 0, motion) for stroke in keys for motion in ("down", "up")])

    async def insert(self, text: str) -> None:
        """Insert text into the focused element at once, as pasting does."""
        await self.session.call("Input.insertText", text=text)

    async def crash(self) -> None:
        """Kill the page's renderer (for tests)."""
        with suppress(EnvError):  # A crashing page does not answer; the crash ends the call.
            await self.session.call("Page.crash")

    async def close(self) -> None:
        """Close the page; safe to call twice and on a dead browser."""
        self.session.fail("the page was closed")
        self._connection.forget(self.session)
        if not self._connection.closed:
            await self._connection.browser.call("Target.closeTarget", targetId=self._target_id)

    async def _mouse(
        self, events: list[tuple[str, float, float, int]], modifiers: int = 0, button: Button = "left"
    ) -> None:
        """Send mouse events together: (type, x, y, number of the click). The button stays down from press to
        release."""
        calls: list[dict[str, Any]] = []
        for kind, x, y, number in events:
            self.pointer = x, y
            self.button_down = kind == "mousePressed" or (self.button_down and kind == "mouseMoved")
            pressed = button if self.button_down or kind == "mouseReleased" else "none"
            buttons = BUTTON_BITS[button] if self.button_down else 0
            calls.append({"type": kind, "x": x, "y": y, "button": pressed, "buttons": buttons, "clickCount": number})
        await self._send_all("Input.dispatchMouseEvent", [{**call, "modifiers": modifiers} for call in calls])

    async def _strike(self, keys: list[tuple[Stroke, int, str]]) -> None:
        """Send key events together: (stroke, modifiers, `down` or `up`)."""
        calls: list[dict[str, Any]] = []
        for struck, modifiers, motion in keys:
            stroke = shifted(struck) if modifiers & MODIFIER_BITS["Shift"] else struck
            shared = {"key": stroke.key, "code": stroke.code, "windowsVirtualKeyCode": stroke.virtual_key}
            text = "" if modifiers & ~MODIFIER_BITS["Shift"] else stroke.text
            # A browser asks the desktop for the meaning of a shortcut, and a headless browser has no desktop.
            commands = ["selectAll"] if modifiers == MODIFIER_BITS["Control"] and stroke.key == "a" else []
            down = "keyDown" if text else "rawKeyDown"
            press = {"type": down, "modifiers": modifiers, "text": text, "commands": commands}
            calls.append({**(press if motion == "down" else {"type": "keyUp", "modifiers": modifiers}), **shared})
        await self._send_all("Input.dispatchKeyEvent", calls)

    async def _send_all(self, method: str, calls: list[dict[str, Any]]) -> None:
        """Send calls in order without waiting for each answer."""
        await asyncio.gather(*(self.session.call(method, **params) for params in calls))

    def _accept_dialog(self, _: Event) -> None:
        """Accept any JavaScript dialog at once, since it blocks every script of the page."""
        self._connection.send(self.session.session_id, "Page.handleJavaScriptDialog", {"accept": True})

    def _frame_attached(self, event: Event) -> None:
        if event["parentFrameId"] == self._target_id:
            self._frame_id = event["frameId"]

    def _frame_navigated(self, event: Event) -> None:
        self.left = self.left or event["frame"]["id"] in (self._frame_id, self._target_id)
