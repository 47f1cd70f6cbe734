"""Actions of a Gymnasium space as text: names or numbers of a discrete space, JSON for any other."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy

from quartet.actions.error import ActionError


class ActionReader:
    """Reader of responses as elements of an action space."""

    def __init__(self, space: Any, names: Sequence[str]) -> None:
        """Make a reader. `names` are those of a discrete space; without names its actions are numbers."""
        self._space, first = space, int(getattr(space, "start", 0))
        count = int(getattr(space, "n", 0))
        named = names or [str(first + number) for number in range(count)]
        self._actions = {name.lower(): first + number for number, name in enumerate(named[:count])}
        # A longer name is tried first, since it may contain a shorter one.
        longest = sorted(map(re.escape, self._actions), key=len, reverse=True)
        self._pattern = re.compile(rf"(?<!\w)(?:{'|'.join(longest)})(?!\w)", re.IGNORECASE)
        self.usage = f"one of {', '.join(self._actions)}" if self._actions else f"JSON for {space}"

    def read(self, response: str) -> tuple[Any, str]:
        """Return the action and its text: the last name in the response, or the JSON of its last line.

        Raise `ActionError` for a response without an action of the space.
        """
        if self._actions:
            found = self._pattern.findall(response)
            if not found:
                raise ActionError(f"no action: write {self.usage}")
            return self._actions[found[-1].lower()], found[-1].lower()
        line = response.strip().rpartition("\n")[2]
        try:
            value = numpy.asarray(msgspec.json.decode(line), dtype=self._space.dtype)
        except (msgspec.DecodeError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise ActionError(f"no action: write {self.usage}") from error
        if not self._space.contains(value):
            raise ActionError(f"outside the space: write {self.usage}")
        return value, line


def names_of(env: Any) -> list[str]:
    """Return the names of an environment's actions, from its enumeration `actions` (as MiniGrid has); else none."""
    actions: Any = getattr(env.unwrapped, "actions", None)
    return [action.name for action in actions] if hasattr(actions, "__members__") else []
