"""Performance of a response's actions in order, the same for browsers and desktops."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from quartet.actions.taken import canonical, taken
from quartet.types import Action, Done, Infeasible, Outcome, TakenAction, Wait
from quartet.types.frame import Point, Screen, to_screen

MAX_ACTIONS = 16
"""Maximum number of actions of one response. With `MAX_WAITED_SECONDS`, and a desktop's limit of its waits for quiet,
it keeps a response within the step's time limit: a response that takes longer would be an error of the environment
instead of the policy."""
MAX_WAIT_SECONDS = 5.0
"""Maximum duration of a wait; a longer one is cut."""
MAX_WAITED_SECONDS = 10.0
"""Maximum duration of all waits of one response."""
MAX_TYPED_CHARACTERS = 1000
"""Maximum length of a typed or pasted text. A key takes about a millisecond, and typing must end within the step's time
limit."""


class ActionFailedError(Exception):
    """The action is impossible in this state of the environment. The message is part of an observation's text, so it is
    short, and changing it requires a new `observation_format`."""


class Performer(Protocol):
    """Access to the input devices of one page or display."""

    async def perform(self, action: Action) -> list[tuple[float, float]]:
        """Perform one action. Return its points in pixels of the screen: one for a click, both ends of a drag, none for
        keys.

        Raise `ActionFailedError` if the action is impossible.
        """
        ...

    async def release(self) -> None:
        """Release all keys and buttons that are down."""
        ...


async def ends_episode(action: Action) -> bool:
    """Return whether the action ends an episode by its kind alone, as the policy's own declaration does."""
    return isinstance(action, Done | Infeasible)


async def perform_all(
    actions: Sequence[Action],
    performer: Performer,
    is_over: Callable[[Action], Awaitable[bool]],
    *,
    ended: bool = False,
) -> list[TakenAction]:
    """Perform the actions in order, and release all keys and buttons, also after an error.

    No action is started after one that failed or that ended the episode (`is_over`), and none at all if the episode has
    `ended` before. The first action beyond `MAX_ACTIONS` or `MAX_WAITED_SECONDS` fails.
    """
    records: list[TakenAction] = []
    waited_seconds = 0.0
    try:
        for index, action in enumerate(actions):
            if ended:
                records.append(TakenAction(action=action, canonical=canonical(action), outcome=Outcome.ENDED))
                continue
            error, points = "", []
            waited_seconds += wait_seconds(action.seconds) if isinstance(action, Wait) else 0.0
            try:
                _check_budget(index + 1, waited_seconds)
                points = await performer.perform(action)
            except ActionFailedError as failure:
                error = str(failure)
            records.append(taken(action, error, points))
            ended = bool(error) or (index + 1 < len(actions) and await is_over(action))
    finally:
        await performer.release()
    return records


def wait_seconds(seconds: float) -> float:
    """Return the duration of a wait, cut to its limit."""
    return min(max(seconds, 0.0), MAX_WAIT_SECONDS)


def typed(text: str) -> str:
    """Return a text that may be typed. Raise `ActionFailedError` for one that is too long."""
    if len(text) > MAX_TYPED_CHARACTERS:
        raise ActionFailedError(f"text longer than {MAX_TYPED_CHARACTERS} characters")
    return text


def _check_budget(count: int, waited_seconds: float) -> None:
    """Raise `ActionFailedError` for an action beyond the budget of its response."""
    if count > MAX_ACTIONS:
        raise ActionFailedError(f"more than {MAX_ACTIONS} actions in one response")
    if waited_seconds > MAX_WAITED_SECONDS:
        raise ActionFailedError(f"waits of more than {MAX_WAITED_SECONDS:g} s in one response")


def on_screen(point: Point, width: int, height: int) -> tuple[float, float]:
    """Return the position of a point in pixels. Raise `ActionFailedError` for a point outside the page.

    The far edge of a frame is one pixel past the screen, and a policy that names it means the last pixel. In pixels of
    the screen itself, this edge is outside.
    """
    x, y = to_screen(point, width, height)
    if point.frame != Screen():
        x, y = (x - 1 if x == width else x), (y - 1 if y == height else y)
    if not (0 <= x < width and 0 <= y < height):
        raise ActionFailedError(f"outside the page ({point.x:g},{point.y:g})")
    return x, y
