"""Key codes of an X server for characters and named keys; characters that no key types get a spare key."""

from collections.abc import Callable

from Xlib import XK
from Xlib.display import Display

KEYSYMS = {
    **{"Enter": "Return", "Backspace": "BackSpace", "PageUp": "Prior", "PageDown": "Next", "Space": "space"},
    **{"PrintScreen": "Print"},
    **{"ArrowLeft": "Left", "ArrowUp": "Up", "ArrowRight": "Right", "ArrowDown": "Down"},
    **{"Alt": "Alt_L", "Control": "Control_L", "Meta": "Super_L", "Shift": "Shift_L"},
}
"""Canonical name of a key -> its name in X, for the keys whose names differ."""
_CONTROLS = {"\n": "Return", "\r": "Return", "\t": "Tab"}
_UNICODE = 0x01000000
"""Keysyms of characters outside of Latin-1 are their code points plus this number."""
Stroke = tuple[int, bool]
"""Key code, and whether Shift is held."""


class Keymap:
    """The keyboard mapping of one X server. `settle` waits until programs have read the keys pressed before."""

    def __init__(self, display: Display, settle: Callable[[], object]) -> None:
        self._display, self._settle = display, settle
        self._strokes: dict[int, Stroke] = {}
        self._spare: list[int] = []
        self._lent: dict[int, int] = {}
        first = display.display.info.min_keycode
        table = display.get_keyboard_mapping(first, display.display.info.max_keycode - first + 1)
        for code, keysyms in enumerate(table, first):
            if not any(keysyms):
                self._spare.append(code)
            for level, keysym in enumerate(keysyms[:2]):
                if keysym:  # 0 is an empty place, and also the keysym of an unknown name
                    self._strokes.setdefault(keysym, (code, level == 1))
        self._free = list(self._spare)

    def named(self, name: str) -> Stroke | None:
        """Return the stroke of a key by its canonical name or character; None if there is no such key."""
        if len(name) == 1:
            return self.character(name)
        return self._strokes.get(XK.string_to_keysym(KEYSYMS.get(name, name)))

    def character(self, character: str) -> Stroke | None:
        """Return the stroke that types a character; None for a control character."""
        if character in _CONTROLS:
            return self.named(_CONTROLS[character])
        if not character.isprintable():
            return None
        point = ord(character)
        keysym = point if point < 0x100 else _UNICODE + point
        return self._strokes.get(keysym) or self._lend(keysym)

    def _lend(self, keysym: int) -> Stroke:
        """Map the keysym to a spare key. Once all spare keys are in use, free all of them first."""
        if keysym not in self._lent:
            if not self._free:
                self._settle()  # programs look a key up when they read the event
                self._free, self._lent = list(self._spare), {}
            code = self._free.pop()
            self._display.change_keyboard_mapping(code, [(keysym, keysym)])
            self._display.sync()
            self._lent[keysym] = code
        return self._lent[keysym], False
