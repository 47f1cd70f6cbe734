"""Function calls as some models write actions: `click(point='<point>1 2</point>')`. They are read, and never executed.

Arguments are strings, numbers, True, False, None, and flat lists of these. A quote inside a string ends it only before
`,`, `)` or `]`, so a text with an apostrophe is read as it is meant.
"""

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from quartet.actions.error import ActionError, UnwritableError

MAX_RESPONSE_CHARACTERS = 100_000

_STRING = r"'(?:[^'\\]|\\.|'(?!\s*+[,)\]]))*+'|\"(?:[^\"\\]|\\.|\"(?!\s*+[,)\]]))*+\""
_ATOM = rf"(?:{_STRING}|-?\d{{1,15}}+(?:\.\d{{1,15}}+)?+|True|False|None)"
_LIST = rf"\[\s*+(?:{_ATOM}\s*+,?+\s*+)*+\]"
_ARGUMENT = re.compile(rf"\s*+(?:([A-Za-z_]\w*+)\s*+=\s*+)?+({_ATOM}|{_LIST})\s*+(,|(?=\)))", re.DOTALL)
_ATOM_PATTERN = re.compile(_ATOM, re.DOTALL)
_OPENING = re.compile(r"([a-z_]\w{0,40}+)\s*+\(")
_CONSTANTS = {"True": True, "False": False, "None": None}
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}


class FunctionCall(Struct, frozen=True):
    """Name and arguments of a call."""

    name: str
    positional: list[Any]
    named: dict[str, Any]

    def bound(self, *names: str) -> dict[str, Any]:
        """Return the arguments by name. Raise `ActionError` for too many, repeated or unknown ones."""
        given = dict(zip(names, self.positional, strict=False))
        if len(self.positional) > len(names) or given.keys() & self.named.keys() or self.named.keys() - set(names):
            raise ActionError(f"wrong arguments of {self.name}")
        return given | self.named


def function_calls(text: str) -> tuple[list[FunctionCall], str]:
    """Return the calls at the beginning of `text`, and the text after them. Raise `ActionError` for a malformed call,
    and for a text that does not begin with one."""
    if len(text) > MAX_RESPONSE_CHARACTERS:
        raise ActionError("response too long")
    text = text.encode(errors="replace").decode()  # Half of a surrogate pair cannot be typed or sent.
    calls, position = [], 0
    while rest := text[position:].lstrip():
        position = len(text) - len(rest)
        opening = _OPENING.match(text, position)
        if opening is None:
            break
        call, position = _call(opening[1], text, opening.end())
        calls.append(call)
    if rest and not calls:
        raise ActionError("not an action: expected NAME(ARGUMENTS)")
    return calls, rest


def _call(name: str, text: str, position: int) -> tuple[FunctionCall, int]:
    """Return the call whose arguments begin at `position`, and the position after it."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    while (argument := _ARGUMENT.match(text, position)) is not None:
        keyword, value = argument[1], _value(argument[2])
        if (keyword is None and named) or keyword in named:
            raise ActionError(f"wrong arguments of {name}")
        if keyword is None:
            positional.append(value)
        else:
            named[keyword] = value
        position = argument.end()
        if not argument[3]:
            break
    end = re.compile(r"\s*+\)").match(text, position)
    if end is None:
        raise ActionError(f"malformed arguments of {name}")
    return FunctionCall(name, positional, named), end.end()


def _value(text: str) -> Any:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] in "'\"":
        return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[0]), text[1:-1], flags=re.DOTALL)
    if text[0] == "[":
        return [_value(atom[0]) for atom in _ATOM_PATTERN.finditer(text, 1)]
    return float(text) if "." in text else int(text)


def write_call(name: str, *positional: Any, **named: Any) -> str:
    """Return a call as text, which `function_calls` reads back."""
    arguments = [*map(_written, positional), *(f"{key}={_written(value)}" for key, value in named.items())]
    return f"{name}({', '.join(arguments)})"


def _written(value: Any) -> str:
    if isinstance(value, str):
        for character in "\\'\n\r\t":
            value = value.replace(character, "\\" + {"\n": "n", "\r": "r", "\t": "t"}.get(character, character))
        return f"'{value}'"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_written, value))}]"
    if re.fullmatch(_ATOM, repr(value)) is None:
        raise UnwritableError(f"{value!r:.100} cannot be written as an argument")
    return repr(value)
