"""Keys by name, with their fields in the DevTools protocol."""

import re
from collections.abc import Sequence
from string import ascii_lowercase, ascii_uppercase

from msgspec import Struct
from msgspec.structs import replace

from quartet.actions.error import ActionError


class Stroke(Struct, frozen=True):
    """One key with the fields of `Input.dispatchKeyEvent`."""

    key: str
    code: str
    virtual_key: int
    text: str = ""
    """Text that the key types, or empty."""


MODIFIER_BITS = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}
"""Bit of each modifier in `Input.dispatchKeyEvent` and `Input.dispatchMouseEvent`."""
_SHIFTED = str.maketrans(ascii_lowercase + "`1234567890-=[]\\;',./", ascii_uppercase + '~!@#$%^&*()_+{}|:"<>?')
"""Characters of a US keyboard with Shift held."""
_NAMED = {
    stroke.key: stroke
    for stroke in (
        Stroke("Enter", "Enter", 13, "\r"),
        Stroke("Tab", "Tab", 9),
        Stroke("Escape", "Escape", 27),
        Stroke("Backspace", "Backspace", 8),
        Stroke("Delete", "Delete", 46),
        Stroke("Insert", "Insert", 45),
        Stroke("PrintScreen", "PrintScreen", 44),
        Stroke("Home", "Home", 36),
        Stroke("End", "End", 35),
        Stroke("PageUp", "PageUp", 33),
        Stroke("PageDown", "PageDown", 34),
        Stroke("ArrowLeft", "ArrowLeft", 37),
        Stroke("ArrowUp", "ArrowUp", 38),
        Stroke("ArrowRight", "ArrowRight", 39),
        Stroke("ArrowDown", "ArrowDown", 40),
        Stroke("Shift", "ShiftLeft", 16),
        Stroke("Control", "ControlLeft", 17),
        Stroke("Alt", "AltLeft", 18),
        Stroke("Meta", "MetaLeft", 91),
        *(Stroke(f"F{number}", f"F{number}", 111 + number) for number in range(1, 13)),
    )
}
KEYS = (*_NAMED, "Space")
"""Names of the keys whose names have several characters."""
_ALIASES = {
    "return": "Enter",
    "\n": "Enter",
    "\r": "Enter",
    "\t": "Tab",
    " ": "Space",
    "esc": "Escape",
    "del": "Delete",
    "left": "ArrowLeft",
    "up": "ArrowUp",
    "right": "ArrowRight",
    "down": "ArrowDown",
    "ctrl": "Control",
    "cmd": "Meta",
    "command": "Meta",
    "win": "Meta",
    "super": "Meta",
    "option": "Alt",
    "pgup": "PageUp",
    "page_up": "PageUp",
    "pgdn": "PageDown",
    "page_down": "PageDown",
    **dict.fromkeys(["prntscrn", "prtsc", "prtscr"], "PrintScreen"),
    **{
        f"{name}{side}": key
        for name, key in {"ctrl": "Control", "alt": "Alt", "option": "Alt", "shift": "Shift", "win": "Meta"}.items()
        for side in ("left", "right")
    },
    **{name.lower(): name for name in KEYS},
}
_SHORT_NAMES = {
    **{"ArrowLeft": "left", "ArrowRight": "right", "ArrowUp": "up", "ArrowDown": "down", "Control": "ctrl"},
    **{"Meta": "win", "Escape": "esc"},
}
"""Keys whose name in PyAutoGUI is not their name in lower case."""


def canonical_keys(text: str) -> str | None:
    """Return `Control+a` for `ctrl-A`; None if there is no such key.

    A single character is a key; `Space` names the space bar.
    """
    return _chord(re.split(r"(?<=.)[+-](?=.)", text))


def keys_of(text: str) -> str:
    """Return `canonical_keys`. Raise `ActionError` if there is no such key."""
    keys = canonical_keys(text)
    if keys is None:
        raise ActionError(f"no key {text[:20]}")
    return keys


def chord(names: Sequence[str]) -> str:
    """Return the canonical name of keys that are held together. Raises `ActionError` for an unknown key, and for two
    keys that are not modifiers."""
    keys = _chord(names)
    if keys is None:
        raise ActionError(f"no key {'+'.join(names)[:20]}")
    return keys


def parts_of(keys: str) -> list[str]:
    """Return the modifiers and the key of a canonical name."""
    return re.split(r"(?<=.)\+(?=.)", keys)


def short_names(keys: str) -> list[str]:
    """Return the modifiers and the key of a canonical name as PyAutoGUI and most models name them.

    >>> short_names("Control+ArrowLeft")
    ['ctrl', 'left']
    """
    return [_SHORT_NAMES.get(name, name.lower() if len(name) > 1 else name) for name in parts_of(keys)]


def _chord(names: Sequence[str]) -> str | None:
    if not names or not names[-1]:
        return None
    *modifiers, key = names
    held = [_ALIASES.get(modifier.lower(), "") for modifier in modifiers]
    if not MODIFIER_BITS.keys() >= set(held):
        return None
    ordered = sorted(set(held), key=lambda name: MODIFIER_BITS[name])
    if len(key) > 1 or key.isspace():
        key = _ALIASES.get(key.lower(), "")
    elif ordered and ordered != ["Shift"] and len(key.lower()) == 1:
        key = key.lower()
    return "+".join([*ordered, key]) if key else None


def strokes(keys: str) -> tuple[Stroke, int]:
    """Return the stroke and the modifier bits of a canonical key name."""
    *modifiers, key = parts_of(keys)
    bits = sum(MODIFIER_BITS[modifier] for modifier in modifiers)
    return _NAMED.get(key) or character_stroke(" " if key == "Space" else key), bits


def shifted(stroke: Stroke) -> Stroke:
    """Return the stroke of the same key with Shift held, on a US keyboard."""
    if len(stroke.key) > 1:
        return stroke
    return replace(stroke, key=stroke.key.translate(_SHIFTED), text=stroke.text.translate(_SHIFTED))


def character_stroke(character: str) -> Stroke:
    """Return the stroke that types one character, even one that is on no keyboard."""
    if character in "\r\n":
        return _NAMED["Enter"]
    if character.isascii() and character.isalnum():
        code = f"Digit{character}" if character.isdigit() else f"Key{character.upper()}"
        return Stroke(character, code, ord(character.upper()), character)
    if character == " ":
        return Stroke(" ", "Space", 32, " ")
    return Stroke(character, "", 0, character)
