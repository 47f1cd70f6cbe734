"""Base of sessions that perform the typed actions of a response, in a browser or on a desktop."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from quartet.actions.grammar import ActionError, parse_action
from quartet.types import Action, Outcome, StepResult, TakenAction


class ActingSession(ABC):
    """Session with both forms of a step: text in Quartet's grammar, and typed actions."""

    async def step(self, action: str) -> StepResult:
        """Apply one action in Quartet's grammar; otherwise like `act`."""
        try:
            parsed = parse_action(action)
        except ActionError as error:
            return await self._turn([], TakenAction(outcome=Outcome.PARSE_ERROR, error=str(error)))
        return await self._turn([parsed])

    async def act(self, actions: Sequence[Action]) -> StepResult:
        """Perform the actions of one response in order."""
        return await self._turn(actions)

    @abstractmethod
    async def _turn(self, actions: Sequence[Action], *unreadable: TakenAction) -> StepResult:
        """Perform the actions, and add the record of an `unreadable` one."""
