"""Typed actions of a policy in a turn, and the outcome of each."""

from enum import StrEnum
from typing import Any, Literal

from msgspec import Struct, field

from quartet.types.frame import Place

Gesture = Literal[
    "move",
    "click",
    "double_click",
    "triple_click",
    "right_click",
    "middle_click",
    "long_press",
    "drag",
    "scroll",
    "down",
    "up",
]
"""`down` and `up` press and release the left button."""

WHEEL_PIXELS = 100
"""Pixels of a page by which one wheel step scrolls it."""


class Pointer(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="pointer"):
    """A mouse or touch action."""

    gesture: Gesture
    places: list[Place] = []
    """Target of the gesture, or both ends of a drag. Empty for a gesture where the pointer is, and a single place for a
    drag from there."""
    scrolled: tuple[float, float] = (0.0, 0.0)
    """Wheel steps to the right and down."""


class Keyboard(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="keyboard"):
    """Typed text, or keys one after the other: presses (`Enter`) and hotkeys (`Control+a`)."""

    text: str = ""
    keys: list[str] = []
    """Keys with their modifiers, in the names of `quartet.actions.keyboard`."""
    motion: Literal["press", "down", "up"] = "press"
    """Motion of the keys. Keys that are still down at the end of a turn are released."""
    place: Place | None = None
    """Place to focus first; None keeps the current focus."""


class ToolCall(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="call"):
    """A call of a named tool of the environment."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    id: str = ""
    """Id of the call, which the tool's result repeats; empty if results need no id."""


class Wait(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="wait"):
    """A pause, during which the environment continues to run."""

    seconds: float = 1.0


class Done(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="done"):
    """The policy considers the task finished."""

    answer: str = ""
    """Answer to a question of the task; empty if it asks none."""


class Infeasible(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="infeasible"):
    """The policy considers the task impossible. An error or a lack of time does not count as this declaration."""

    reason: str = ""


class Text(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="text"):
    """Text for an environment that reads responses itself."""

    text: str = ""


Action = Pointer | Keyboard | ToolCall | Wait | Done | Infeasible | Text


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
    """The action was not started: an earlier action of its turn had ended the episode, or was not done."""


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
