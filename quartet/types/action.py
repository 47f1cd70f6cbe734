"""What a policy did in a turn, as data: typed actions, and the outcome of each."""

from enum import StrEnum
from typing import Any, Literal

from msgspec import Struct, field

from quartet.types.frame import Place

Gesture = Literal["move", "click", "double_click", "right_click", "middle_click", "long_press", "drag", "scroll"]


class Pointer(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="pointer"):
    """An action of the mouse or of a finger."""

    gesture: Gesture
    places: list[Place] = []
    """One, or both ends of a drag; none where the gesture needs none."""
    scrolled: tuple[float, float] = (0.0, 0.0)
    """Steps of the wheel, to the right and down."""


class Keyboard(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="keyboard"):
    """Text that is typed, or keys that are pressed one after the other."""

    text: str = ""
    keys: list[str] = []
    """Each with its modifiers, for example `Control+a`."""
    place: Place | None = None
    """What gets the focus first; None: what has it."""


class ToolCall(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="call"):
    """A call of something that the environment offers by name."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    id: str = ""
    """By which the tool's answer names the call; empty where answers need no name."""


class Text(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="text"):
    """Words for a reader, or for an environment that takes any text."""

    text: str = ""
    final: bool = False
    """It is the policy's answer, or says that the policy has finished."""


Action = Pointer | Keyboard | ToolCall | Text


class Outcome(StrEnum):
    """What became of an action. Only the policy itself can declare a task infeasible; no failure stands for it."""

    DONE = "done"
    PARSE_ERROR = "parse_error"
    """The response held no valid action."""
    REFUSED = "refused"
    """A valid action that could not be done, for example on an element that is not there."""
    INFEASIBLE = "infeasible"
    """The policy declared that the task cannot be done."""
    TIMEOUT = "timeout"
    """It had not ended when the time of the episode or of the action was over."""
    ENDED = "ended"
    """It was not begun: an earlier action of its turn had ended the episode."""


class TakenAction(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One action of a response, and what became of it."""

    action: Action | None = None
    """None where the response held no valid one."""
    canonical: str = ""
    """The action in the environment's own words, as later prompts repeat it; empty where it has none."""
    outcome: Outcome = Outcome.DONE
    error: str = ""
    """Why it was not done, as the policy was told."""
    points: list[tuple[float, float]] = []
    """Where on the screen it pointed, in pixels: one place for a click, two for a drag, none for keys."""
