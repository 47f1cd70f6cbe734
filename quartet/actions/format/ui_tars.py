"""The format `ui_tars`: UI-TARS 1.5, whose coordinates are pixels of the picture after the model's resizing."""

import re
from collections.abc import Sequence
from typing import Any, Literal

from quartet.actions.error import ActionError
from quartet.actions.format.base import ActionFormat, coordinate, number, refuse
from quartet.actions.function_calls import FunctionCall, function_calls, write_call
from quartet.actions.keyboard import chord, short_names
from quartet.config.section import Section
from quartet.types import Action, Done, Infeasible, Keyboard, Pointer, Wait
from quartet.types.frame import Frame, Place, Point, Resized, Unit

SCROLL_STEPS = 5
"""Wheel steps of one `scroll`."""
WAIT_SECONDS = 5.0
THOUSANDTHS = Unit(1000)
_POINTERS = {
    "click": "click",
    "left_single": "click",
    "left_double": "double_click",
    "right_single": "right_click",
    "hover": "move",
    "long_press": "long_press",
}
_DIRECTIONS = {"down": (0, 1), "up": (0, -1), "right": (1, 0), "left": (-1, 0)}
_KEYS = {"hotkey": "press", "press": "press", "keydown": "down", "release": "up"}
_BOXES = {"point": "start_box", "start_point": "start_box", "end_point": "end_box"}
"""Points, and their names in UI-TARS 1.0."""
_NUMBER = re.compile(r"-?\d{1,15}+(?:\.\d{1,15}+)?+")
_ACTION = re.compile(r"(?:^|\n)[ \t]*+Action:")
_THOUGHT = re.compile(r"\n[ \t]*+Thought:")


class UiTars(ActionFormat):
    """Function calls after each `Action:`, with points such as `<point>100 200</point>`; thoughts before it. Other text
    after the calls is refused, as by UI-TARS's own parser."""

    class Settings(Section):
        coordinates: Literal["resized", "thousandths"] = "resized"
        """Frame of the coordinates: `resized` (pixels of the resized picture) in UI-TARS 1.5, `thousandths` of the
        screen in UI-TARS 1.0."""

    settings: Settings
    source = "Qin et al. 2025, UI-TARS: Pioneering Automated GUI Interaction with Native Agents"
    instructions = r"""You are a GUI agent. You are given a task and your action history, with screenshots. Perform \
the next action to complete the task.

## Output Format
Thought: ...
Action: ...

## Action Space
click(point='<point>x1 y1</point>')
left_double(point='<point>x1 y1</point>')
right_single(point='<point>x1 y1</point>')
drag(start_point='<point>x1 y1</point>', end_point='<point>x2 y2</point>')
hotkey(key='ctrl c') # at most three keys, in lower case, with spaces between them
type(content='xxx') # write \', \" and \n for quotes and line breaks; a line break at the end submits
scroll(point='<point>x1 y1</point>', direction='down or up or right or left')
wait() # 5 seconds
finished(content='xxx')
call_user() # the task cannot be done""".replace("\\\n", "")

    def parse(self, text: str, picture: Frame) -> list[Action]:
        _, *blocks = _ACTION.split(text)
        frame = picture if self.settings.coordinates == "resized" else THOUSANDTHS
        calls = [call for block in blocks or [text] for call in _calls(_THOUGHT.split(block)[0])]
        actions = [_read(call, frame) for call in calls]
        if not actions:
            raise ActionError("no action after 'Action:'")
        return actions

    def write(self, actions: Sequence[Action]) -> str:
        return "Action: " + "\n\n".join(map(self._written, actions))

    def _written(self, action: Action) -> str:
        match action:
            case Pointer(gesture="scroll", places=[] | [Point()], scrolled=scrolled):
                points = [self._place(point) for point in action.places if isinstance(point, Point)]
                place = dict(zip(["point"], points, strict=False))
                for direction, (right, down) in _DIRECTIONS.items():
                    if scrolled == (SCROLL_STEPS * right, SCROLL_STEPS * down):
                        return write_call("scroll", **place, direction=direction)
            case Pointer(gesture="drag", places=[Point() as start, Point() as end], scrolled=(0, 0)):
                return write_call("drag", start_point=self._place(start), end_point=self._place(end))
            case Pointer(places=[Point() as point], scrolled=(0, 0)) if action.gesture in _POINTERS.values():
                names = {gesture: name for name, gesture in reversed(_POINTERS.items())}
                return write_call(names[action.gesture], point=self._place(point))
            case Keyboard(text="", keys=[keys], place=None) if " " not in keys:
                names = {"press": "hotkey", "down": "keydown", "up": "release"}
                return write_call(names[action.motion], key=" ".join(short_names(keys)))
            case Keyboard(text=text, keys=[], place=None, motion="press"):
                return write_call("type", content=text)
            case Wait(seconds=seconds) if seconds == WAIT_SECONDS:
                return write_call("wait")
            case Done(answer=answer):
                return write_call("finished", **({"content": answer} if answer else {}))
            case Infeasible(reason=""):
                return write_call("call_user")
        refuse(action, "ui_tars")

    def _place(self, point: Point) -> str:
        resized = self.settings.coordinates == "resized"
        if not (isinstance(point.frame, Resized) if resized else point.frame == THOUSANDTHS):
            refuse(Pointer(gesture="move", places=[point]), f"ui_tars in {self.settings.coordinates}")
        return f"<point>{number(point.x)} {number(point.y)}</point>"


def _calls(text: str) -> list[FunctionCall]:
    calls, rest = function_calls(text)
    if rest:
        raise ActionError("not an action: expected NAME(ARGUMENTS)")
    return calls


def _read(call: FunctionCall, frame: Frame) -> Action:
    if call.name in _POINTERS:
        gesture: Any = _POINTERS[call.name]
        return Pointer(gesture=gesture, places=_points(call, frame, "point"))
    if call.name in _KEYS:
        motion: Any = _KEYS[call.name]
        return Keyboard(keys=[chord(_text(call.bound("key"), "key").split())], motion=motion)
    match call.name:
        case "drag" | "select":
            return Pointer(gesture="drag", places=_points(call, frame, "start_point", "end_point"))
        case "scroll":
            return _scroll(call, frame)
        case "type":
            return Keyboard(text=_text(call.bound("content"), "content"))
        case "wait":
            return Wait(seconds=WAIT_SECONDS)
        case "finished":
            return Done(answer=_text({"content": ""} | call.bound("content"), "content"))
        case "call_user":
            return Infeasible()
    raise ActionError(f"no action {call.name[:20]}")


def _text(arguments: dict[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str):
        raise ActionError(f"{name} is not text")
    return value


def _scroll(call: FunctionCall, frame: Frame) -> Pointer:
    given = _bound(call, "point", "direction")
    right, down = _DIRECTIONS.get(_text(given, "direction").lower(), (0, 0))
    if not (right or down):
        raise ActionError("unknown direction")
    places: list[Place] = [_point(given, "point", frame)] if "point" in given else []
    return Pointer(gesture="scroll", places=places, scrolled=(SCROLL_STEPS * right, SCROLL_STEPS * down))


def _points(call: FunctionCall, frame: Frame, *names: str) -> list[Place]:
    given = _bound(call, *names)
    return [_point(given, name, frame) for name in names]


def _point(given: dict[str, Any], name: str, frame: Frame) -> Point:
    """Return the point of an argument: two coordinates, or the middle of a box."""
    match [coordinate(float(found)) for found in _NUMBER.findall(_text(given, name))]:
        case [x, y]:
            return Point(x, y, frame)
        case [left, top, right, bottom]:
            return Point((left + right) / 2, (top + bottom) / 2, frame)
    raise ActionError(f"no point in {name}")


def _bound(call: FunctionCall, *names: str) -> dict[str, Any]:
    """Return the arguments by name, a box under the name of its point. Raise `ActionError` for too many, repeated or
    unknown ones."""
    points = {_BOXES[name]: name for name in names if name in _BOXES}
    named = {points.get(name, name): value for name, value in call.named.items()}
    if len(named) < len(call.named):
        raise ActionError(f"wrong arguments of {call.name}")
    return FunctionCall(call.name, call.positional, named).bound(*names)
