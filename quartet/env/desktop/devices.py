"""Pointer and keyboard of an X server, through its extension XTEST."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from Xlib import X
from Xlib.display import Display
from Xlib.ext import xtest

from quartet.actions.keyboard import parts_of
from quartet.env.desktop.keymap import Keymap

LEFT, MIDDLE, RIGHT = 1, 2, 3
BUTTONS = (LEFT, MIDDLE, RIGHT)
_UP, _DOWN, _LEFTWARDS, _RIGHTWARDS = 4, 5, 6, 7
"""Numbers of the buttons by which X reports steps of the wheel."""
DRAG_STEPS = 8
"""Number of moves of a drag: a program starts a drag only after the pointer has moved some pixels."""


class Devices:
    """Pointer and keyboard. Every request is sent once and has reached the server when the method returns."""

    def __init__(self, display: Display, keymap: Keymap) -> None:
        self._display, self._keymap = display, keymap

    def move(self, x: float, y: float) -> None:
        self._send(X.MotionNotify, 0, x=round(x), y=round(y))
        self._display.sync()

    def click(self, button: int = LEFT, count: int = 1) -> None:
        for _ in range(count):
            self._send(X.ButtonPress, button)
            self._send(X.ButtonRelease, button)
        self._display.sync()

    def down(self, button: int = LEFT) -> None:
        self._send(X.ButtonPress, button)
        self._display.sync()

    def up(self, button: int = LEFT) -> None:
        self._send(X.ButtonRelease, button)
        self._display.sync()

    def drag_to(self, x: float, y: float) -> None:
        """Drag from the pointer's position to a point."""
        pointer = self._display.screen().root.query_pointer()
        self.down()
        for step in range(1, DRAG_STEPS + 1):
            share = step / DRAG_STEPS
            self.move(pointer.root_x + (x - pointer.root_x) * share, pointer.root_y + (y - pointer.root_y) * share)
        self.up()

    def scroll(self, right: int, down: int) -> None:
        """Turn the wheel by steps."""
        self.click(_RIGHTWARDS if right > 0 else _LEFTWARDS, abs(right))
        self.click(_DOWN if down > 0 else _UP, abs(down))

    def type(self, text: str) -> None:
        """Type a text. Characters that cannot be typed must have been refused before."""
        for character in text:
            if stroke := self._keymap.character(character):
                self._strike(*stroke)
        self._display.sync()

    def can_type(self, text: str) -> bool:
        return all(character in "\n\r\t" or character.isprintable() for character in text)

    def key(self, keys: str, motion: Literal["press", "down", "up"] = "press") -> bool:
        """Press a key with its modifiers held, or leave them down, or release them. Return False for an unknown key."""
        strokes = [self._keymap.named(name) for name in parts_of(keys)]
        found = [stroke for stroke in strokes if stroke is not None]
        if len(found) < len(strokes):
            return False
        *modifiers, (code, shifted) = found
        if motion == "press":
            with self._held([modifier for modifier, _ in modifiers]):
                self._strike(code, shifted)
        else:
            for each, _ in found:
                self._send(X.KeyPress if motion == "down" else X.KeyRelease, each)
        self._display.sync()
        return True

    def release_all(self) -> None:
        """Release every key and button that is down."""
        for code in self._keys_down():
            self._send(X.KeyRelease, code)
        mask = self._display.screen().root.query_pointer().mask
        for button in BUTTONS:
            if mask & X.Button1Mask << (button - 1):
                self._send(X.ButtonRelease, button)
        self._display.sync()

    def _strike(self, code: int, shifted: bool) -> None:
        shift = self._keymap.named("Shift")
        with self._held([shift[0]] if shifted and shift else []):
            self._send(X.KeyPress, code)
            self._send(X.KeyRelease, code)

    @contextmanager
    def _held(self, codes: list[int]) -> Iterator[None]:
        """Hold keys; those that are already down stay down."""
        down = self._keys_down() if codes else []
        codes = [code for code in codes if code not in down]
        for code in codes:
            self._send(X.KeyPress, code)
        yield
        for code in reversed(codes):
            self._send(X.KeyRelease, code)

    def _keys_down(self) -> list[int]:
        """Return the codes of the keys that are down."""
        keymap = self._display.query_keymap()
        return [8 * byte + bit for byte, bits in enumerate(keymap) for bit in range(8) if bits >> bit & 1]

    def _send(self, kind: int, detail: int, x: int = 0, y: int = 0) -> None:
        xtest.fake_input(self._display, kind, detail, x=x, y=y)
