"""Actions of a Gymnasium space as text: names or numbers of a discrete space, JSON for arrays."""

import re
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import numpy

from quartet.actions.error import ActionError
from quartet.env.extra import import_extra
from quartet.errors import ConfigError


class ActionReader(Protocol):
    """Reader of responses as elements of an action space."""

    usage: str
    """Description, for the policy, of what a response has to contain."""

    def read(self, response: str) -> tuple[Any, str]:
        """Return the action and its text. Raise `ActionError` for a response without an action of the space."""
        ...


class NamedActions:
    """Reader of actions by name: the last name in a response counts. Case matters only between names that differ in
    nothing else."""

    def __init__(self, names: Sequence[str], first: int = 0) -> None:
        """Number the names from `first` on."""
        self._actions = {name: number for number, name in enumerate(names, first)}
        lower = [name.lower() for name in names]
        self._by_lower_case = {name.lower(): name for name in names if lower.count(name.lower()) == 1}
        # A longer name is tried first, since it may contain a shorter one.
        longest = sorted(map(re.escape, names), key=len, reverse=True)
        self._pattern = re.compile(rf"(?<!\w)(?:{'|'.join(longest)})(?!\w)", re.IGNORECASE)
        self.usage = f"one of {', '.join(names)}"

    def read(self, response: str) -> tuple[int, str]:
        """Return the number of the last name in the response, and the name."""
        found = self._pattern.findall(response)
        written = found[-1] if found else ""
        name = written if written in self._actions else self._by_lower_case.get(written.lower())
        if name is None:
            raise ActionError(f"no action: write {self.usage}")
        return self._actions[name], name


class ArrayActions:
    """Reader of arrays, such as those of a `Box`, from JSON on the last line of a response."""

    def __init__(self, space: Any) -> None:
        self._space = space
        self.usage = f"JSON for {space}"

    def read(self, response: str) -> tuple[numpy.ndarray, str]:
        """Return the array of the response's last line, and that line."""
        line = response.strip().rpartition("\n")[2]
        try:
            value = numpy.asarray(msgspec.json.decode(line), dtype=self._space.dtype)
        except (msgspec.DecodeError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise ActionError(f"no action: write {self.usage}") from error
        if not self._space.contains(value):
            raise ActionError(f"outside the space: write {self.usage}")
        return value, line


def reader_of(env: Any, names: Sequence[str]) -> ActionReader:
    """Return the reader of an environment's actions. `names` are those of a discrete space; without them its actions
    have the names of the environment's enumeration `actions` (as in MiniGrid), or are numbers.

    Raise `ConfigError` for names that do not fit, and for a space that is neither discrete nor one of arrays.
    """
    space, spaces = env.action_space, import_extra("gymnasium.spaces", "gymnasium")
    if not isinstance(space, spaces.Discrete):
        if names:
            raise ConfigError(f"env.action_names names the actions of {space}", "only a Discrete space has names")
        if not isinstance(space, spaces.Box | spaces.MultiBinary | spaces.MultiDiscrete):
            raise ConfigError(
                f"actions of {space} cannot be read from text", "wrap the environment, so that its space is Discrete"
            )
        return ArrayActions(space)
    first, count = int(space.start), int(space.n)
    if names and (len(names), len({*names})) != (count, count):
        raise ConfigError(
            f"env.action_names has {len({*names})} different names for {count} actions", "name each action once"
        )
    return NamedActions(names or _enumerated(env, count) or [str(first + number) for number in range(count)], first)


def _enumerated(env: Any, count: int) -> list[str]:
    """Return the names of the first `count` actions of the enumeration `actions`, since some of MiniGrid's environments
    allow only the first ones; none without an enumeration of so many."""
    actions: Any = getattr(env.unwrapped, "actions", None)
    names = [action.name for action in actions] if hasattr(actions, "__members__") else []
    return names[:count] if len(names) >= count else []
