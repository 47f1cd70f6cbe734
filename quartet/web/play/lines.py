"""Lines of an observation, with the click that each offers."""

import re

from msgspec import Struct

from quartet.types import Observation

_REFERENCE = re.compile(r"\[(\d+)\]")


class PlayLine(Struct, frozen=True, kw_only=True):
    text: str
    click: str
    """Action that clicks the element in this line; empty if the line lists none."""


def lines_of(observation: Observation) -> list[PlayLine]:
    """Return the lines of the text that a policy reads."""
    spoken = [f"{message.role}: {message.content}" for message in observation.messages]
    return [PlayLine(text=line, click=_click(line)) for line in "\n".join([*spoken, observation.text]).splitlines()]


def _click(line: str) -> str:
    references = _REFERENCE.findall(line)
    return f"click [{references[0]}]" if len(references) == 1 else ""
