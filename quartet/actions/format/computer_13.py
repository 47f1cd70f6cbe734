"""The format `computer_13`: OSWorld's action space as JSON, in pixels of the screen."""

import re
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from quartet.actions.arguments import storable
from quartet.actions.error import ActionError
from quartet.actions.format.base import ActionFormat, coordinate, number, refuse
from quartet.actions.keyboard import chord, parts_of, short_names
from quartet.types import Action, Done, Infeasible, Keyboard, Pointer, Wait
from quartet.types.frame import Frame, Point, Screen

_SENTINELS: dict[str, Action] = {"WAIT": Wait(), "DONE": Done(), "FAIL": Infeasible()}
_POINTERS = {
    "MOVE_TO": "move",
    "CLICK": "click",
    "RIGHT_CLICK": "right_click",
    "DOUBLE_CLICK": "double_click",
    "DRAG_TO": "drag",
    "MOUSE_DOWN": "down",
    "MOUSE_UP": "up",
}
_CLICKS = {("left", 1): "click", ("left", 2): "double_click", ("left", 3): "triple_click"} | {
    ("right", 1): "right_click",
    ("middle", 1): "middle_click",
}
_KEYS = {"PRESS": "press", "KEY_DOWN": "down", "KEY_UP": "up"}
_PARAMETERS = {
    **dict.fromkeys(["MOVE_TO", "RIGHT_CLICK", "DOUBLE_CLICK", "DRAG_TO"], ("x", "y")),
    **dict.fromkeys(["MOUSE_DOWN", "MOUSE_UP"], ("button",)),
    **dict.fromkeys(_KEYS, ("key",)),
    **dict.fromkeys(_SENTINELS, ()),
    "CLICK": ("button", "x", "y", "num_clicks"),
    "SCROLL": ("dx", "dy"),
    "TYPING": ("text",),
    "HOTKEY": ("keys",),
}
"""Parameters of each type of action."""
_FENCED = re.compile(r"```(?:json|code)?+\s*+(.*?)```", re.DOTALL)


class _Parameters(Struct):
    x: float | None = None
    y: float | None = None
    dx: float | None = None
    dy: float | None = None
    button: Literal["left", "right", "middle"] = "left"
    num_clicks: int = 1
    text: str | None = None
    key: str | None = None
    keys: list[str] = []


class Computer13(ActionFormat):
    """JSON objects with `action_type` and `parameters`, or one of the words WAIT, DONE and FAIL."""

    source = "Xie et al. 2024, OSWorld: Benchmarking Multimodal Agents for Open-Ended Tasks, appendix"
    instructions = """You see the screen of a computer and act on it. Think, then write JSON objects in a code block:
```json
{"action_type": "CLICK", "parameters": {"x": 100, "y": 200, "button": "left", "num_clicks": 1}}
```
Action types and their parameters: MOVE_TO (x, y), CLICK (button, x, y, num_clicks), MOUSE_DOWN, MOUSE_UP, \
RIGHT_CLICK (x, y), DOUBLE_CLICK (x, y), DRAG_TO (x, y), SCROLL (dx, dy: wheel steps, dy is positive upwards), \
TYPING (text), PRESS (key), KEY_DOWN (key), KEY_UP (key), HOTKEY (keys). Instead of an object the block may hold WAIT, \
DONE (the task is finished) or FAIL (the task cannot be done)."""

    def parse(self, text: str, picture: Frame) -> list[Action]:
        blocks = _FENCED.findall(text) or [text]
        actions = [action for block in blocks for action in _read(block.strip())]
        if not actions:
            raise ActionError("not an action: expected a JSON object")
        return actions

    def write(self, actions: Sequence[Action]) -> str:
        return "\n".join(f"```json\n{_written(action)}\n```" for action in actions)


def _read(block: str) -> list[Action]:
    if block in _SENTINELS:
        return [_SENTINELS[block]]
    try:
        found = msgspec.json.decode(block, type=dict[str, Any] | list[dict[str, Any]])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise ActionError("the JSON is not an action") from None
    return [_action(*_given(step)) for step in (found if isinstance(found, list) else [found])]


def _given(step: dict[str, Any]) -> tuple[str, _Parameters]:
    """Return the type of an action and its parameters: those in `parameters` or, if this is missing, beside the type.

    Raise `ActionError` for a parameter that the type does not have, and for one coordinate without the other.
    """
    kind = step.pop("action_type", None)
    if not isinstance(kind, str) or kind not in _PARAMETERS:
        raise ActionError(f"no action {kind!s:.20}")
    parameters, unknown = (step.pop("parameters"), set(step)) if "parameters" in step else (step, set())
    try:
        given = msgspec.convert(storable(parameters), _Parameters)  # no integer is then too large for a float
    except msgspec.ValidationError:
        raise ActionError(f"wrong parameters of {kind}") from None
    unknown |= parameters.keys() - _PARAMETERS[kind]
    if unknown or (given.x is None) != (given.y is None):
        raise ActionError(f"wrong parameters of {kind}")
    return kind, given


def _action(kind: str, given: _Parameters) -> Action:
    if kind in _SENTINELS:
        return _SENTINELS[kind]
    if kind in _POINTERS:
        gesture: Any = _POINTERS[kind]
        if kind == "CLICK":
            gesture = _CLICKS.get((given.button, given.num_clicks))
        if kind in ("MOUSE_DOWN", "MOUSE_UP") and given.button != "left":
            raise ActionError("only the left button can be held")
        if gesture is None or (kind == "DRAG_TO" and given.x is None):
            raise ActionError(f"wrong parameters of {kind}")
        return Pointer(gesture=gesture, places=_places(given))
    if kind in _KEYS and given.key is not None:
        motion: Any = _KEYS[kind]
        return Keyboard(keys=[chord([given.key])], motion=motion)
    if kind == "HOTKEY":
        return Keyboard(keys=[chord(given.keys)])
    if kind == "TYPING" and given.text is not None:
        return Keyboard(text=given.text)
    if kind == "SCROLL" and (given.dx is not None or given.dy is not None):
        return Pointer(gesture="scroll", scrolled=(coordinate(given.dx or 0.0), -coordinate(given.dy or 0.0)))
    raise ActionError(f"wrong parameters of {kind}")


def _places(given: _Parameters) -> list[Any]:
    if given.x is None or given.y is None:
        return []
    return [Point(coordinate(given.x), coordinate(given.y))]


def _written(action: Action) -> str:
    for word, sentinel in _SENTINELS.items():
        if action == sentinel:
            return word
    kind, parameters = _step(action)
    # A code block ends at three backticks, so JSON writes this character by its number.
    return msgspec.json.encode({"action_type": kind, "parameters": parameters}).decode().replace("`", "\\u0060")


def _step(action: Action) -> tuple[str, dict[str, Any]]:
    """Return the type of the action and its parameters."""
    kinds = {gesture: kind for kind, gesture in _POINTERS.items()}
    match action:
        case Pointer(gesture="triple_click" | "middle_click" as gesture, places=[] | [_], scrolled=(0, 0)):
            middle = gesture == "middle_click"
            button = {"button": "middle" if middle else "left", "num_clicks": 1 if middle else 3}
            return "CLICK", button | _coordinates(action)
        case Pointer(gesture="drag", places=[_], scrolled=(0, 0)):
            return "DRAG_TO", _coordinates(action)
        case Pointer(gesture="down" | "up" as gesture, places=[], scrolled=(0, 0)):
            return kinds[gesture], {}
        case Pointer(gesture="move" | "click" | "right_click" | "double_click" as gesture, places=[] | [_]):
            if action.scrolled == (0, 0):
                return kinds[gesture], _coordinates(action)
        case Pointer(gesture="scroll", places=[], scrolled=(right, down)):
            return "SCROLL", {"dx": number(right), "dy": number(-down)}
        case Keyboard(text="", keys=[keys], place=None, motion="press") if len(parts_of(keys)) > 1:
            return "HOTKEY", {"keys": short_names(keys)}
        case Keyboard(text="", keys=[key], place=None, motion=motion) if len(parts_of(key)) == 1:
            return {motion: kind for kind, motion in _KEYS.items()}[motion], {"key": short_names(key)[0]}
        case Keyboard(text=text, keys=[], place=None, motion="press"):
            return "TYPING", {"text": text}
    refuse(action, "computer_13")


def _coordinates(action: Pointer) -> dict[str, Any]:
    match action.places:
        case []:
            return {}
        case [Point(x, y, Screen())]:
            return {"x": number(x), "y": number(y)}
    refuse(action, "computer_13")
