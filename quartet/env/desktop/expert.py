"""Scripted experts: a list of actions, with elements named by their kind and label."""

import re
from collections.abc import Sequence

from quartet.errors import ExpertError
from quartet.types import Observation

_NAMED = re.compile(r"<(\w+ [^<>]+)>")


class ScriptedExpert:
    """Policy that performs the actions of a script, one per turn, and then declares the task done."""

    def __init__(self, script: Sequence[str]) -> None:
        self._script = [*script]

    def __call__(self, observation: Observation) -> str:
        """Return the next action, with the references that the observation shows. Raise `ExpertError` if it does not
        list an element."""
        if not self._script:
            return "done"
        return _NAMED.sub(lambda match: _reference(match[1], observation.text), self._script.pop(0))


def _reference(name: str, text: str) -> str:
    """Return label and reference of the first element of this name, in which `…` stands for any text."""
    pattern = ".*".join(re.escape(part) for part in name.split("…"))
    for line in text.split("\n"):
        if match := re.match(rf"(?=\S+ )({pattern}) \[(\d+)\]", line):
            return f"{match[1].partition(' ')[2]} [{match[2]}]"
    raise ExpertError(f"the expert finds no element {name!r} among:\n{text}", "fix the family's `expert`")
