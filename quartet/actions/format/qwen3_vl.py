"""The format `qwen3_vl`: the tool `computer_use` of Qwen3-VL, whose coordinates are thousandths of the screen."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from quartet.actions.arguments import storable
from quartet.actions.error import ActionError
from quartet.actions.format.base import ActionFormat, coordinate, number, refuse
from quartet.actions.keyboard import chord, short_names
from quartet.config.section import PositiveFloat, Section
from quartet.types import Action, Done, Infeasible, Keyboard, Pointer, ToolCall, Wait
from quartet.types.frame import Frame, Point, Unit

TOOL = "computer_use"
OPENING, CLOSING = "<tool_call>", "</tool_call>"
_POINTERS = {
    "mouse_move": "move",
    "left_click": "click",
    "double_click": "double_click",
    "triple_click": "triple_click",
    "right_click": "right_click",
    "middle_click": "middle_click",
    "left_click_drag": "drag",
}


class _Arguments(Struct, forbid_unknown_fields=True):
    action: str
    keys: list[str] = []
    text: str | None = None
    coordinate: tuple[float, float] | None = None
    pixels: float | None = None
    time: float | None = None
    status: Literal["success", "failure"] | None = None


class _Call(Struct):
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


class Qwen3Vl(ActionFormat):
    """Tool calls as JSON. A drag begins where the pointer is; `terminate` with `failure` says that the task is
    impossible."""

    class Settings(Section):
        parts: Literal[999, 1000] = 1000
        """Number of parts into which the coordinates divide the screen's width and height."""
        pixels_per_wheel_step: PositiveFloat = 100.0
        """`pixels` of a scroll that are one step of a mouse wheel."""

    settings: Settings
    source = "Bai et al. 2025, Qwen3-VL Technical Report; its cookbook for computer use"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.instructions = f"""You see a screen of {settings.parts} x {settings.parts} units and act on it with the \
function {TOOL}. Its arguments:
action: key (keys: list), type (text), mouse_move, left_click, left_click_drag, right_click, middle_click, \
double_click, triple_click (each with coordinate: [x, y]), scroll and hscroll (pixels: positive is up, or right), \
wait (time: seconds), answer (text), terminate (status: success or failure)
Return each call as JSON within tags:
{OPENING}
{{"name": "{TOOL}", "arguments": {{"action": "left_click", "coordinate": [500, 500]}}}}
{CLOSING}"""

    def parse(self, text: str, picture: Frame) -> list[Action]:
        calls = text.split(OPENING)[1:]
        if not calls:
            raise ActionError("no tool call")
        return [self._read(call.partition(CLOSING)[0]) for call in calls]

    def write(self, actions: Sequence[Action]) -> str:
        return "\n".join(f"{OPENING}\n{_json(*self._written(action))}\n{CLOSING}" for action in actions)

    def _read(self, text: str) -> Action:
        try:
            call = msgspec.json.decode(text, type=_Call)
            arguments = storable(call.arguments)  # so that no integer is too large for a float
            if call.name != TOOL:
                return ToolCall(name=call.name, arguments=arguments)
            said = msgspec.convert(arguments, _Arguments)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise ActionError("malformed tool call") from None
        if said.action in _POINTERS:
            gesture: Any = _POINTERS[said.action]
            return Pointer(gesture=gesture, places=self._places(said))
        match said:
            case _Arguments(action="key", keys=[_, *_]):
                return Keyboard(keys=[chord(said.keys)])
            case _Arguments(action="type", text=str(typed)):
                return Keyboard(text=typed)
            case _Arguments(action="scroll" | "hscroll", pixels=float(pixels)):
                steps = coordinate(pixels) / self.settings.pixels_per_wheel_step
                scrolled = (0.0, -steps) if said.action == "scroll" else (steps, 0.0)
                return Pointer(gesture="scroll", places=self._places(said), scrolled=scrolled)
            case _Arguments(action="wait", time=seconds):
                return Wait() if seconds is None else Wait(seconds=coordinate(seconds))
            case _Arguments(action="answer", text=str(answer)):
                return Done(answer=answer)
            case _Arguments(action="terminate", status=str(status)):
                return Done() if status == "success" else Infeasible()
        raise ActionError(f"no action {said.action[:20]}, or without its arguments")

    def _places(self, said: _Arguments) -> list[Any]:
        if said.coordinate is None:
            if said.action == "left_click_drag":
                raise ActionError("coordinate missing")
            return []
        x, y = map(coordinate, said.coordinate)
        return [Point(x, y, Unit(self.settings.parts))]

    def _written(self, action: Action) -> tuple[str, dict[str, Any]]:
        """Return the name of the tool and its arguments."""
        names = {gesture: name for name, gesture in _POINTERS.items()}
        scale = self.settings.pixels_per_wheel_step
        match action:
            case Pointer(gesture="drag", places=[_], scrolled=(0, 0)):
                return TOOL, {"action": "left_click_drag", **self._coordinate(action)}
            case Pointer(gesture=gesture, places=[] | [_], scrolled=(0, 0)) if gesture in names and gesture != "drag":
                return TOOL, {"action": names[gesture], **self._coordinate(action)}
            case Pointer(gesture="scroll", places=[] | [_], scrolled=(0, down)):
                return TOOL, {"action": "scroll", **self._coordinate(action), "pixels": number(-down * scale)}
            case Pointer(gesture="scroll", places=[] | [_], scrolled=(right, 0)):
                return TOOL, {"action": "hscroll", **self._coordinate(action), "pixels": number(right * scale)}
            case Keyboard(text="", keys=[keys], place=None, motion="press"):
                return TOOL, {"action": "key", "keys": short_names(keys)}
            case Keyboard(text=text, keys=[], place=None, motion="press"):
                return TOOL, {"action": "type", "text": text}
            case Wait(seconds=seconds):
                return TOOL, {"action": "wait", "time": number(seconds)}
            case Done(answer=""):
                return TOOL, {"action": "terminate", "status": "success"}
            case Done(answer=answer):
                return TOOL, {"action": "answer", "text": answer}
            case Infeasible(reason=""):
                return TOOL, {"action": "terminate", "status": "failure"}
            case ToolCall(name=name, arguments=arguments, id="") if name != TOOL:
                return name, arguments
        refuse(action, "qwen3_vl")

    def _coordinate(self, action: Pointer) -> dict[str, Any]:
        match action.places:
            case []:
                return {}
            case [Point(x, y, Unit(parts))] if parts == self.settings.parts:
                return {"coordinate": [number(x), number(y)]}
        refuse(action, "qwen3_vl")


def _json(name: str, arguments: dict[str, Any]) -> str:
    """Return the JSON of a call. No text in it can be read as a tag."""
    text = msgspec.json.encode({"name": name, "arguments": arguments}).decode()
    return text.replace("<", "\\u003c")
