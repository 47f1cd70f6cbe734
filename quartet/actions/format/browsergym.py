"""The format `browsergym`: function calls with the ids of BrowserGym's elements, or with pixels of the page."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from quartet.actions.error import ActionError
from quartet.actions.format.base import ActionFormat, coordinate, number, refuse
from quartet.actions.function_calls import FunctionCall, function_calls, write_call
from quartet.actions.grammar import SELECT
from quartet.actions.keyboard import keys_of
from quartet.types import Action, Done, Infeasible, Keyboard, Pointer, ToolCall, Wait
from quartet.types.action import WHEEL_PIXELS
from quartet.types.frame import Element, Frame, Point, Screen

_CLICKS = {
    ("click", "left"): "click",
    ("click", "right"): "right_click",
    ("click", "middle"): "middle_click",
    ("dblclick", "left"): "double_click",
}
_BUTTONS = {"mouse_down": "down", "mouse_up": "up"}
"""Gestures of the left button; `Pointer` has none for the others."""
_KEYS = {"keyboard_press": "press", "keyboard_down": "down", "keyboard_up": "up"}
_TOOLS = {
    "focus": ["bid"],
    "clear": ["bid"],
    "goto": ["url"],
    "go_back": [],
    "go_forward": [],
    "new_tab": [],
    "tab_close": [],
    "tab_focus": ["index"],
    "upload_file": ["bid", "file"],
}
"""Actions that stay calls of a tool, with the names of their arguments."""
_FIRST_CALL = re.compile(r"(?:^|\n)[ \t`]*+(?=[a-z_]+\()")


class BrowserGym(ActionFormat):
    """Function calls, one per line: `click('a12')`, `fill('b3', 'text')`, `mouse_click(80, 120)`."""

    source = "Le Sellier De Chezelles et al. 2024, The BrowserGym Ecosystem for Web Agent Research"
    instructions = """You see a page and act on it. Think, then write each action as a function call in its own line:
click(bid, button='left'), dblclick(bid), hover(bid), fill(bid, value), press(bid, key_comb), \
select_option(bid, options), drag_and_drop(from_bid, to_bid), scroll(delta_x, delta_y), keyboard_type(text), \
keyboard_press(key), mouse_move(x, y), mouse_click(x, y, button='left'), mouse_dblclick(x, y), \
mouse_drag_and_drop(from_x, from_y, to_x, to_y), noop(wait_ms=1000), send_msg_to_user(text) to finish with an answer, \
report_infeasible(reason). A bid is the text in brackets before or after an element, as in click('a12')."""

    def parse(self, text: str, picture: Frame) -> list[Action]:
        first = _FIRST_CALL.search(text)
        if first is None:
            raise ActionError("not an action: expected NAME(ARGUMENTS)")
        calls, _ = function_calls(text[first.end() :])
        return [_read(call) for call in calls]

    def write(self, actions: Sequence[Action]) -> str:
        return "\n".join(map(_written, actions))


def _read(call: FunctionCall) -> Action:
    if call.name in _TOOLS:
        return ToolCall(name=call.name, arguments=call.bound(*_TOOLS[call.name]))
    if call.name not in _READERS:
        raise ActionError(f"no action {call.name[:20]}")
    try:
        return _READERS[call.name](*call.positional, **call.named)
    except (KeyError, TypeError):
        raise ActionError(f"wrong arguments of {call.name}") from None


def _pointer(gesture: Any, *places: Any) -> Pointer:
    return Pointer(gesture=gesture, places=list(places))


def _button(gesture: Any) -> Callable[..., Pointer]:
    def read(x: Any, y: Any, button: Any = "left") -> Pointer:
        if button != "left":
            raise ActionError("only the left button can be held")
        return _pointer(gesture, _point(x, y))

    return read


def _option(value: Any) -> str:
    """Return the option to select, given by itself or as the only one of a list."""
    match value:
        case str(option) | [str(option)]:
            return option
    raise ActionError("select_option takes one option")


def _point(x: Any, y: Any) -> Point:
    return Point(coordinate(x), coordinate(y))


def _element(bid: Any) -> Element:
    return Element(_str(bid))


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _keyboard(motion: Any) -> Callable[[Any], Keyboard]:
    return lambda key: Keyboard(keys=[keys_of(_str(key))], motion=motion)


def _scroll(delta_x: Any, delta_y: Any) -> Pointer:
    scrolled = (coordinate(delta_x) / WHEEL_PIXELS, coordinate(delta_y) / WHEEL_PIXELS)
    return Pointer(gesture="scroll", scrolled=scrolled)


_READERS: dict[str, Callable[..., Action]] = {
    "click": lambda bid, button="left": _pointer(_CLICKS["click", button], _element(bid)),
    "dblclick": lambda bid, button="left": _pointer(_CLICKS["dblclick", button], _element(bid)),
    "hover": lambda bid: _pointer("move", _element(bid)),
    "drag_and_drop": lambda from_bid, to_bid: _pointer("drag", _element(from_bid), _element(to_bid)),
    "mouse_click": lambda x, y, button="left": _pointer(_CLICKS["click", button], _point(x, y)),
    "mouse_dblclick": lambda x, y, button="left": _pointer(_CLICKS["dblclick", button], _point(x, y)),
    "mouse_move": lambda x, y: _pointer("move", _point(x, y)),
    **{name: _button(gesture) for name, gesture in _BUTTONS.items()},
    "mouse_drag_and_drop": lambda from_x, from_y, to_x, to_y: _pointer(
        "drag", _point(from_x, from_y), _point(to_x, to_y)
    ),
    "scroll": _scroll,
    "fill": lambda bid, value: Keyboard(text=_str(value), place=_element(bid)),
    "press": lambda bid, key_comb: Keyboard(keys=[keys_of(_str(key_comb))], place=_element(bid)),
    "keyboard_type": lambda text: Keyboard(text=_str(text)),
    "keyboard_insert_text": lambda text: Keyboard(text=_str(text)),
    **{name: _keyboard(motion) for name, motion in _KEYS.items()},
    "select_option": lambda bid, options: ToolCall(
        name=SELECT, arguments={"element": _str(bid), "option": _option(options)}
    ),
    "noop": lambda wait_ms=1000: Wait(seconds=coordinate(wait_ms) / 1000),
    "send_msg_to_user": lambda text: Done(answer=_str(text)),
    "report_infeasible": lambda reason="": Infeasible(reason=_str(reason)),
}
"""Action for the arguments of each function."""


def _written(action: Action) -> str:
    match action:
        case Pointer():
            return _write_pointer(action)
        case Keyboard():
            return _write_keyboard(action)
        case ToolCall(name=name, arguments={"element": str(ref), "option": str(option), **rest}, id=""):
            if name == SELECT and not rest:
                return write_call("select_option", ref, option)
        case ToolCall(name=name, arguments=arguments, id="") if list(arguments) == _TOOLS.get(name):
            return write_call(name, *arguments.values())
        case Wait(seconds=seconds):
            return write_call("noop", number(seconds * 1000))
        case Done(answer=answer):
            return write_call("send_msg_to_user", answer)
        case Infeasible(reason=reason):
            return write_call("report_infeasible", reason)
    refuse(action, "browsergym")


def _write_pointer(action: Pointer) -> str:
    match action:
        case Pointer(places=[Element(label="") as place], scrolled=(0, 0)):
            return _write_at_element(action, place.ref)
        case Pointer(places=[Point(x, y, Screen())], scrolled=(0, 0)):
            return _write_at_point(action, number(x), number(y))
        case Pointer(gesture="drag", places=[Element(start, ""), Element(end, "")], scrolled=(0, 0)):
            return write_call("drag_and_drop", start, end)
        case Pointer(gesture="drag", places=[Point(x, y, Screen()), Point(to_x, to_y, Screen())], scrolled=(0, 0)):
            return write_call("mouse_drag_and_drop", *map(number, (x, y, to_x, to_y)))
        case Pointer(gesture="scroll", places=[], scrolled=(right, down)):
            return write_call("scroll", number(right * WHEEL_PIXELS), number(down * WHEEL_PIXELS))
    refuse(action, "browsergym")


def _write_keyboard(action: Keyboard) -> str:
    match action:
        case Keyboard(text="", keys=[key], place=Element(ref, ""), motion="press"):
            return write_call("press", ref, key)
        case Keyboard(text="", keys=[key], place=None, motion=motion):
            return write_call({motion: name for name, motion in _KEYS.items()}[motion], key)
        case Keyboard(text=text, keys=[], place=Element(ref, ""), motion="press"):
            return write_call("fill", ref, text)
        case Keyboard(text=text, keys=[], place=None, motion="press"):
            return write_call("keyboard_type", text)
    refuse(action, "browsergym")


def _write_at_element(action: Pointer, ref: str) -> str:
    for (name, button), gesture in _CLICKS.items():
        if action.gesture == gesture:
            return write_call(name, ref) if button == "left" else write_call(name, ref, button=button)
    if action.gesture == "move":
        return write_call("hover", ref)
    refuse(action, "browsergym")


def _write_at_point(action: Pointer, x: float, y: float) -> str:
    for (name, button), gesture in _CLICKS.items():
        if action.gesture == gesture:
            return write_call(f"mouse_{name}", x, y, **({} if button == "left" else {"button": button}))
    for name, gesture in {"mouse_move": "move", **_BUTTONS}.items():
        if action.gesture == gesture:
            return write_call(name, x, y)
    refuse(action, "browsergym")
