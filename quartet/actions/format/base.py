"""Interface of formats of actions: read the actions of a response, and write actions as a response."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NoReturn

from quartet.actions.error import ActionError, UnwritableError
from quartet.config import Recipe
from quartet.errors import ConfigError
from quartet.part import Part
from quartet.registry import find
from quartet.types import Action
from quartet.types.frame import Frame

LARGEST_COORDINATE = 1e6


class ActionFormat(Part):
    """Notation of actions that a family of models was trained on. Text of a model is data: it is never executed."""

    instructions: str = ""
    """Description of the format for the policy: the system's message at the beginning of every conversation."""

    @abstractmethod
    def parse(self, text: str, picture: Frame) -> list[Action]:
        """Return the actions of a response, in order. Other text around them is ignored, unless the models' own parser
        refuses it.

        `picture` is the coordinate frame of the newest picture as the policy reads it; a format whose coordinates have
        another frame ignores it. Raise `ActionError` for a response without actions, or with a malformed one.
        """

    @abstractmethod
    def write(self, actions: Sequence[Action]) -> str:
        """Return a response with these actions, which `parse` reads back.

        Raise `UnwritableError` for an action that the format cannot express, such as a point of another frame.
        """

    @classmethod
    def check(cls, settings: Any, recipe: Recipe) -> None:
        """Raise `ConfigError` if the environment reads responses itself."""
        environment: Any = find("env", recipe.env.name)
        if not environment.typed_actions:
            raise ConfigError(
                f"the environment {recipe.env.name!r} reads responses itself",
                "leave rollout.actions at 'environment', or set `typed_actions` in the class of the environment, whose "
                "sessions then define `act`",
            )


def refuse(action: Action, name: str) -> NoReturn:
    """Raise `UnwritableError` for an action that the format `name` cannot express."""
    raise UnwritableError(f"the format {name!r} has no notation for {action!r:.200}")


def number(value: float) -> int | float:
    """Return a coordinate as it is written: whole numbers without a fraction. Raise `UnwritableError` for one that
    takes an exponent."""
    if not abs(value) < LARGEST_COORDINATE or "e" in repr(value):
        raise UnwritableError(f"the coordinate {value} has no decimal notation, or its size is over the limit")
    return int(value) if value == int(value) else value


def coordinate(value: float) -> float:
    """Return a coordinate that was read. Raise `ActionError` for one that no screen has, and for True and False."""
    if isinstance(value, bool):
        raise ActionError("True and False are no numbers")
    if not abs(value) < LARGEST_COORDINATE:
        raise ActionError("number too large")
    return value
