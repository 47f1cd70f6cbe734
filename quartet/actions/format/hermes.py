"""The format `hermes`: tool calls as JSON between tags, as the chat templates of Hermes and Qwen ask for."""

from collections.abc import Sequence
from typing import Any

import msgspec

from quartet.actions.arguments import storable
from quartet.actions.error import ActionError
from quartet.actions.format.base import ActionFormat, refuse
from quartet.types import Action, Text, ToolCall
from quartet.types.frame import Frame

OPENING, CLOSING = "<tool_call>", "</tool_call>"


class WrittenCall(msgspec.Struct, frozen=True):
    """JSON of one call."""

    name: str
    arguments: dict[str, Any] = {}


class Hermes(ActionFormat):
    """Tool calls `<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>`; a response without one is an answer.

    The tools are listed by the policy's chat template, so the format has no instructions of its own.
    """

    source = "Teknium et al. 2024, Hermes 3 Technical Report; Yang et al. 2024, Qwen2.5 Technical Report"

    def parse(self, text: str, picture: Frame) -> list[Action]:
        text = text.encode(errors="replace").decode()  # Half of a surrogate pair cannot be sent.
        _, *blocks = text.split(OPENING)
        if not blocks:
            return [Text(text=text)]
        return [_read(block.partition(CLOSING)[0].strip()) for block in blocks]

    def write(self, actions: Sequence[Action]) -> str:
        match actions:
            case [Text(text=text)] if OPENING not in text:
                return text
        return "\n".join(map(_written, actions))


def _read(block: str) -> ToolCall:
    try:
        call = msgspec.json.decode(block, type=WrittenCall)
        return ToolCall(name=call.name, arguments=storable(call.arguments))
    except (msgspec.DecodeError, RecursionError) as error:
        raise ActionError(f"malformed tool call: {error}") from None


def _written(action: Action) -> str:
    match action:
        case ToolCall(name=name, arguments=arguments, id=""):
            content = msgspec.json.encode(WrittenCall(name, arguments)).decode()
            if OPENING not in content and CLOSING not in content:
                return f"{OPENING}\n{content}\n{CLOSING}"
    refuse(action, "hermes")
