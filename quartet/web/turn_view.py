"""Turns and calls of a rollout, ready to be shown on its page."""

from msgspec import Struct

from quartet.types import Call, Observation, Outcome, TakenAction, Turn
from quartet.web.pointer_marks import Mark, marks_of
from quartet.web.prompt_view import PromptPart
from quartet.web.tokens import Token

OUTCOMES = {
    Outcome.DONE: "",
    Outcome.PARSE_ERROR: "no valid action",
    Outcome.REFUSED: "not done",
    Outcome.INFEASIBLE: "declared infeasible",
    Outcome.TIMEOUT: "out of time",
    Outcome.ENDED: "not begun: the episode was over",
}
"""Text for an action's outcome; empty for an action that was done."""
_POINTING = ("click", "type", "select", "drag")


class Line(Struct, frozen=True, kw_only=True):
    """One line of the text that the policy read."""

    text: str
    acted_on: bool
    """True if an action refers to the element in this line."""


class CallView(Struct, frozen=True, kw_only=True):
    """One call of the model, ready to be shown."""

    call: Call
    index: int
    tokens: list[Token]
    """Response tokens; empty if they are too many, except on the page of their turn."""
    text: str | None
    """Response as plain text with special tokens, if its tokens are too many to be shown; otherwise None."""
    prompt: list[PromptPart]
    """Texts and pictures of the prompt; empty if it is not shown."""

    @property
    def num_picture_tokens(self) -> int:
        """Number of tokens of the prompt that stand for pictures."""
        return sum(one.num_placeholders for one in self.call.media)


class SeenView(Struct, frozen=True, kw_only=True):
    """Observation before a turn, or the final observation."""

    number: int
    """Number of the turn that follows the observation, from 1; for the final one, the number of turns plus one."""
    observation: Observation
    page: list[Line]
    came_from: tuple[float, float] | None = None
    """Position of the pointer before the turn, in pixels of the picture; None if it is not known."""

    @property
    def when(self) -> str:
        return "at the end"

    @property
    def marks(self) -> list[Mark]:
        """Pointer actions on the last picture."""
        return []

    @property
    def pointed(self) -> str:
        """Caption of the picture: where the actions pointed."""
        return "as it was at the end"


class TurnView(SeenView, frozen=True, kw_only=True):
    """One turn; numbers begin at 1."""

    turn: Turn
    call: CallView | None
    """None if a damaged or older record refers to a call that it does not contain."""
    solves: bool
    """True if this is the last turn of a successful rollout."""

    @property
    def when(self) -> str:
        return f"before turn {self.number}"

    def outcome_of(self, action: TakenAction) -> str:
        """Return the outcome of an action in words, empty for an action that was done.

        A parse error is left out if the turn was rewarded: an environment that accepts any text may answer a correct
        response with a message, which is recorded as an error.
        """
        understood = self.solves or self.turn.reward > 0
        return "" if understood and action.outcome == Outcome.PARSE_ERROR else OUTCOMES[action.outcome]

    @property
    def marks(self) -> list[Mark]:
        return marks_of(self.turn.actions)

    @property
    def pointed(self) -> str:
        if self.marks:
            return "; ".join(mark.words for mark in self.marks)
        if any(action.canonical.startswith(_POINTING) for action in self.turn.actions) and not self.turn.error:
            return "the position was not recorded"
        return "as it was before the action"
