"""Keys by name, with their fields in the DevTools protocol."""

import re

from msgspec import Struct


class Stroke(Struct, frozen=True):
    """One key with the fields of `Input.dispatchKeyEvent`."""

    key: str
    code: str
    virtual_key: int
    text: str = ""
    """Text that the key types, or empty."""


_NAMED = {
    stroke.key: stroke
    for stroke in (
        Stroke("Enter", "Enter", 13, "\r"),
        Stroke("Tab", "Tab", 9),
        Stroke("Escape", "Escape", 27),
        Stroke("Backspace", "Backspace", 8),
        Stroke("Delete", "Delete", 46),
        Stroke("Home", "Home", 36),
        Stroke("End", "End", 35),
        Stroke("PageUp", "PageUp", 33),
        Stroke("PageDown", "PageDown", 34),
        Stroke("ArrowLeft", "ArrowLeft", 37),
        Stroke("ArrowUp", "ArrowUp", 38),
        Stroke("ArrowRight", "ArrowRight", 39),
        Stroke("ArrowDown", "ArrowDown", 40),
    )
}
_ALIASES = {
    "return": "Enter",
    "esc": "Escape",
    "del": "Delete",
    "left": "ArrowLeft",
    "up": "ArrowUp",
    "right": "ArrowRight",
    "down": "ArrowDown",
    **{name.lower(): name for name in _NAMED},
}
_MODIFIERS = {"alt": "Alt", "control": "Control", "ctrl": "Control", "meta": "Meta", "cmd": "Meta", "shift": "Shift"}
MODIFIER_BITS = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}
"""Bit of each modifier in `Input.dispatchKeyEvent` and `Input.dispatchMouseEvent`."""


def canonical_keys(text: str) -> str | None:
    """Return `Control+a` for `ctrl-A`; None if there is no such key.

    A single character is a key; `Space` names the space bar.
    """
    *modifiers, key = re.split(r"(?<=.)[+-](?=.)", text)
    names = [_MODIFIERS.get(modifier.lower()) for modifier in modifiers]
    if None in names:
        return None
    ordered = sorted({name for name in names if name}, key=lambda name: MODIFIER_BITS[name])
    if key.lower() == "space":
        key = "Space"
    elif len(key) > 1:
        key = _ALIASES.get(key.lower(), "")
    elif ordered and ordered != ["Shift"]:
        key = key.lower()
    return "+".join([*ordered, key]) if key else None


def strokes(keys: str) -> tuple[Stroke, int]:
    """Return the stroke and the modifier bits of a canonical key name."""
    *modifiers, key = re.split(r"(?<=.)\+(?=.)", keys)
    bits = sum(MODIFIER_BITS[modifier] for modifier in modifiers)
    return _NAMED.get(key) or character_stroke(" " if key == "Space" else key), bits


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
