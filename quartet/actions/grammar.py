"""Quartet's grammar of actions, short and common to browsers, desktops and games.

    click LABEL [23]             click (80,120)        double_click, triple_click, right_click, middle_click ...
    type LABEL [5] "text"        type here "text"      key Enter | key Control+a | key_down Shift
    select LABEL [9] "Spain"     scroll down           scroll LABEL [4] down 5
    drag LABEL [3] to LABEL [7]  drag (10,60) to (90,60)
    wait 2                       call NAME {"argument": "value"}
    done | done "answer"         infeasible | infeasible "reason"

LABEL is optional. The element is found by its reference, not by its label. `here` is the place of the pointer, or of
the text cursor for `type`. Inside quotes `\\n` is a line break and `\\\\` a backslash. A quote needs no escape, since
the text ends at the last quote of its line.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from quartet.actions.arguments import storable
from quartet.actions.error import ActionError
from quartet.actions.keyboard import canonical_keys, keys_of
from quartet.types.action import Action, Done, Infeasible, Keyboard, Pointer, ToolCall, Wait
from quartet.types.frame import Element, Place, Point

__all__ = ["Action", "ActionError", "clicked", "parse_action", "parse_actions", "parse_calls"]

GRAMMAR = """one of `click LABEL [23]`, `type LABEL [5] "text"`, `key Enter`, `select LABEL [9] "Spain"`, `scroll up`, \
`scroll down`, `drag LABEL [3] to LABEL [7]`, `done`, `infeasible`"""
"""Summary of the grammar for people."""
GRAMMAR_WITHOUT_SELECT = GRAMMAR.replace(' `select LABEL [9] "Spain"`,', "")
"""Summary for environments that cannot choose an option of a list by its text."""

MAX_LABEL_CHARACTERS = 1_000
"""Maximum length of a label. The parser tries each clause of a line, so the text that it reads before a clause fails
must be bounded, since a response may be long (`rollout.max_tokens`). For the same reason all repetitions below are
possessive (`*+`, `++`): they do not backtrack."""
MAX_KEYS = 8
"""Maximum number of keys in one action."""
SELECT = "select"
"""Name of the tool that chooses an option of a list, with the arguments `element`, `option` and perhaps `label`."""
HERE = "here"
"""Word in place of a target."""
DIRECTIONS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
"""Wheel steps to the right and down of one scroll."""
_MOTIONS = {"key": "press", "press": "press", "key_down": "down", "key_up": "up"}
_GESTURES = (
    *("click", "double_click", "triple_click", "right_click", "middle_click", "long_press"),
    *("move", "mouse_down", "mouse_up"),
)

_ELEMENT = rf"[^\[\]]{{0,{MAX_LABEL_CHARACTERS}}}+\[\s*+\d++\s*+\]"
_POINT = r"\(?+\s*+\d++\s*+,\s*+\d++\s*+\)?+"
_TARGET = rf"(?:{_ELEMENT}|{_POINT})"
_BEFORE_QUOTE = r"(?=[\"“”'])"
_END = r"[\s.`*]*+$"
_NUMBER = r"\d{1,6}+(?:\.\d{1,6}+)?+"
_LEADING_NOISE = re.compile(r"(?:[^\w(\[]|\d++[.)])*+")
_CLAUSE_START = re.compile(r"(?:[.:;,!?]|->|=>)\s*+(?=[A-Za-z])")
_CLOSING = {'"': '"”', "“": '”"', "”": '”"', "'": "'’"}
"""Quotes that may close each opening quote, the likeliest first."""


def parse_action(text: str) -> Action:
    """Return the action of a response: the last line that parses; other text around it is ignored.

    Raise `ActionError` if no line parses.
    """
    problem = ActionError("not an action")
    for line in reversed(_lines(text)):
        for start in _clauses(line):
            try:
                action = _parse(line, start)
            except ActionError as error:
                problem = error
                continue
            if action is not None:
                return action
    raise problem


def parse_actions(text: str) -> list[Action]:
    """Return the actions of all lines that begin with one, in order; if no line does, the action of `parse_action`.

    Raise `ActionError` if no line parses, or if a line begins with an action that is wrong, such as `key Foo`. A line
    such as `Press the Save button.` is prose.
    """
    found = [_parse(line, next(_clauses(line))) for line in _lines(text)]
    return [action for action in found if action is not None] or [parse_action(text)]


def parse_calls(text: str) -> list[ToolCall]:
    """Return the calls of tools in a response, in order; none for a response that cannot be parsed."""
    try:
        return [action for action in parse_actions(text) if isinstance(action, ToolCall)]
    except ActionError:
        return []


def clicked(action: Action) -> int | None:
    """Return the number of the element that the action clicks; None for any other action.

    >>> clicked(parse_action("click next [23]"))
    23
    """
    match action:
        case Pointer(gesture="click", places=[Element(ref)]) if ref.isdecimal():
            return int(ref)
    return None


def _lines(text: str) -> list[str]:
    text = text.encode(errors="replace").decode()  # Half of a surrogate pair cannot be typed or sent.
    return [line.strip(" \t\r") for line in text.split("\n")]


def _clauses(line: str) -> Iterator[int]:
    """Yield the start of the line after its list marks, then of each later clause: reasoning may precede the action."""
    start = _LEADING_NOISE.match(line)
    assert start is not None  # it also matches the empty string
    yield start.end()
    for match in _CLAUSE_START.finditer(line, start.end()):
        yield match.end()


def _parse(line: str, start: int) -> Action | None:
    for pattern, build in _RULES:
        if match := pattern.match(line, start):
            return build(match)
    return None


def _pointer(match: re.Match[str]) -> Pointer:
    gesture: Any = match[1].lower().removeprefix("mouse_")
    return Pointer(gesture=gesture, places=_places(match[2]))


def _drag(match: re.Match[str]) -> Pointer:
    return Pointer(gesture="drag", places=[*_places(match[1]), *_places(match[2])])


def _scroll(match: re.Match[str]) -> Pointer:
    right, down = DIRECTIONS[match[2].lower()]
    steps = _number(match[3] or "1")
    return Pointer(gesture="scroll", places=_places(match[1]), scrolled=(right * steps, down * steps))


def _type(match: re.Match[str]) -> Keyboard:
    places = _places(match[1])
    return Keyboard(text=_unquote(match.string[match.end() :]), place=places[0] if places else None)


def _select(match: re.Match[str]) -> ToolCall:
    element = _element(match[1])
    label = {"label": element.label} if element.label else {}
    option = _unquote(match.string[match.end() :])
    return ToolCall(name=SELECT, arguments={"element": element.ref, **label, "option": option})


def _keyboard(match: re.Match[str]) -> Keyboard | None:
    verb, names = match[1].lower(), match[2].split()
    if verb == "press" and _is_prose(names):
        return None
    motion: Any = _MOTIONS[verb]
    return Keyboard(keys=[keys_of(_without_end(name)) for name in names], motion=motion)


def _is_prose(names: list[str]) -> bool:
    """Return whether the first of several words names no key, as in `Press the Enter key`, or is a letter before a word
    that names none, as in `Press a button`."""
    keys = [canonical_keys(_without_end(name)) for name in names]
    return len(names) > 1 and None in keys and (keys[0] is None or len(keys[0]) == 1)


def _call(match: re.Match[str]) -> ToolCall:
    try:
        arguments = storable(msgspec.json.decode(match[2], type=dict[str, Any]))
    except (msgspec.DecodeError, RecursionError):
        raise ActionError("arguments are no JSON object") from None
    return ToolCall(name=match[1], arguments=arguments)


def _word(*words: str) -> str:
    """Return a pattern of one of these words in any case. Only ASCII letters match: Unicode takes `ı` for an `i` of
    another case, and `ſ` for an `s`, and `str.lower` leaves both."""
    return rf"(?ai:{'|'.join(words)})"


_HERE, _TO, _DONE, _INFEASIBLE = _word(HERE), _word("to"), _word("done"), _word("infeasible")

_RULES: list[tuple[re.Pattern[str], Callable[[re.Match[str]], Action | None]]] = [
    (re.compile(pattern, re.DOTALL), build)
    for pattern, build in (
        (rf"({_word(*_GESTURES)})\s*+({_HERE}(?={_END})|{_TARGET}){_END}", _pointer),
        (rf"{_word('type')}\s*+({_HERE}(?=\s*+{_BEFORE_QUOTE})|{_TARGET})\s*+{_BEFORE_QUOTE}", _type),
        (rf"{_word('select')}\s*+({_ELEMENT})\s*+{_BEFORE_QUOTE}", _select),
        (rf"({_word(*_MOTIONS)})\s++(\S++(?:\s++[^\s.`*]++){{0,{MAX_KEYS - 1}}}+){_END}", _keyboard),
        (rf"{_word('scroll')}\s++(?:({_TARGET})\s*+)?+({_word(*DIRECTIONS)})(?:\s++(\d++))?+{_END}", _scroll),
        (rf"{_word('drag')}\s*+({_HERE}(?=\s++{_TO}\b)|{_TARGET})\s*+(?:{_TO}|->)\s*+({_TARGET}){_END}", _drag),
        (rf"{_word('wait')}(?:\s++({_NUMBER}))?+{_END}", lambda match: Wait(seconds=float(match[1] or 1))),
        (rf"{_word('call')}\s++([\w.-]{{1,100}}+)\s*+(\{{.*+)$", _call),
        (rf"{_DONE}{_END}", lambda match: Done()),
        (rf"{_DONE}\s*+{_BEFORE_QUOTE}", lambda match: Done(answer=_unquote(match.string[match.end() :]))),
        (rf"{_INFEASIBLE}{_END}", lambda match: Infeasible()),
        (rf"{_INFEASIBLE}\s*+{_BEFORE_QUOTE}", lambda match: Infeasible(reason=_unquote(match.string[match.end() :]))),
    )
]


def _places(text: str | None) -> list[Place]:
    if text is None or text.lower() == HERE:
        return []
    if "[" in text:
        return [_element(text)]
    x, y = re.findall(r"\d+", text)
    return [Point(_number(x), _number(y))]


def _element(text: str) -> Element:
    label, _, ref = text.rpartition("[")
    return Element(str(_number(ref.strip(" ]\t"))), " ".join(label.split()).strip("\"“”'"))


def _number(digits: str) -> int:
    if len(digits) > 6:
        raise ActionError("number too large")
    return int(digits)


def _without_end(name: str) -> str:
    """Return the name of a key without the punctuation that may follow it."""
    return name[0] + name[1:].rstrip(".`*")


def _unquote(quoted: str) -> str:
    """Return the text between the first quote and the last one that can close it, or to the end of the line."""
    rest = quoted[1:]
    ends = [end for closing in _CLOSING[quoted[0]] if (end := rest.rfind(closing)) >= 0]
    inner = rest[: ends[0]] if ends else rest
    return re.sub(r"\\([\\nr])", lambda m: {"n": "\n", "r": "\r", "\\": "\\"}[m[1]], inner)
