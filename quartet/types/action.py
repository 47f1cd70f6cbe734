"""Typed actions of a policy in a turn, and the outcome of each."""

from enum import StrEnum
from typing import Any, Literal

from msgspec import Struct, field

from quartet.types.frame import Place

Gesture = Literal["move", "click", "double_click", "right_click", "middle_click", "long_press", "drag", "scroll"]


class Pointer(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="pointer"):
    """A mouse or touch action."""

    gesture: Gesture
    places: list[Place] = []
    """Target of the gesture, or both ends of a drag. Empty for a gesture without a target."""
    scrolled: tuple[float, float] = (0.0, 0.0)
    """Wheel steps to the right and down."""


class Keyboard(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="keyboard"):
    """Typed text, or keys pressed one after the other."""

    text: str = ""
    keys: list[str] = []
    """Keys with their modifiers, for example `Control+a`."""
    place: Place | None = None
    """Place to focus first; None keeps the current focus."""


class ToolCall(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="call"):
    """A call of a named tool of the environment."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    id: str = ""
    """Id of the call, which the tool's result repeats; empty if results need no id."""


class Text(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="text"):
    """Text for a reader, or for an environment that accepts any text."""

    text: str = ""
    final: bool = False
    """True for the policy's answer, or for its statement that it has finished."""


Action = Pointer | Keyboard | ToolCall | Text


class Outcome(StrEnum):
    """Outcome of an action."""

    DONE = "done"
    PARSE_ERROR = "parse_error"
    """The response held no valid action."""
    REFUSED = "refused"
    """A valid action could not be done, for example on a missing element."""
    INFEASIBLE = "infeasible"
    """The policy declared that the task cannot be done. This is not inferred from failures."""
    TIMEOUT = "timeout"
    """The action was still running at the timeout of the episode or of the action."""
    ENDED = "ended"
    """The action was not started: an earlier action of its turn had ended the episode."""


class TakenAction(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One action of a response, and its outcome."""

    action: Action | None = None
    """The typed action; None if the response contained no valid action."""
    canonical: str = ""
    """The action in the environment's own notation, as later prompts repeat it; empty if it has none."""
    outcome: Outcome = Outcome.DONE
    error: str = ""
    """Error message shown to the policy; empty if the action was done."""
    points: list[tuple[float, float]] = []
    """Screen positions in pixels: one for a click, two for a drag, none for keys."""
