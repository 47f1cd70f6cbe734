"""Records of the actions that were taken for a response, in the grammar of `quartet.actions.grammar`."""

from collections.abc import Sequence

from quartet.actions.grammar import (
    Action,
    ActionError,
    Click,
    Done,
    Drag,
    Infeasible,
    Key,
    Point,
    Scroll,
    Select,
    Target,
    Type,
    format_action,
    parse_action,
)
from quartet.types import Keyboard, Outcome, Pointer, TakenAction, Text, ToolCall
from quartet.types import action as recorded
from quartet.types import frame as frames


def taken_action(response: str, error: str = "", points: Sequence[tuple[float, float]] = ()) -> TakenAction:
    """Return the action of a response with its outcome. `error` is the environment's message to the policy.

    A response that is no action of this grammar is free text if the environment reported no error.
    """
    try:
        action = parse_action(response)
    except ActionError:
        if error:
            return TakenAction(outcome=Outcome.PARSE_ERROR, error=error)
        return TakenAction(action=Text(text=response), points=list(points))
    gave_up = Outcome.INFEASIBLE if isinstance(action, Infeasible) else Outcome.DONE
    return TakenAction(
        action=_typed(action),
        canonical=format_action(action),
        outcome=Outcome.REFUSED if error else gave_up,
        error=error,
        points=list(points),
    )


def _typed(action: Action) -> recorded.Action:
    match action:
        case Click(target):
            return Pointer(gesture="click", places=[_place(target)])
        case Drag(start, end):
            return Pointer(gesture="drag", places=[_place(start), _place(end)])
        case Scroll(direction):
            return Pointer(gesture="scroll", scrolled=(0, 1 if direction == "down" else -1))
        case Type(target, text):
            return Keyboard(text=text, place=_place(target))
        case Key(keys):
            return Keyboard(keys=[keys])
        case Select(target, option):
            return ToolCall(name="select", arguments={"element": str(target.ref), "option": option})
        case Done() | Infeasible():
            return Text(final=True)


def _place(target: Target) -> frames.Place:
    if isinstance(target, Point):
        return frames.Point(target.x, target.y)
    return frames.Element(str(target.ref), target.label)
