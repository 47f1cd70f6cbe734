"""Budget of one response: it cannot reach the step's time limit, which would be an error of the environment."""

import pytest

from quartet.env.performing import (
    MAX_ACTIONS,
    MAX_TYPED_CHARACTERS,
    MAX_WAIT_SECONDS,
    MAX_WAITED_SECONDS,
    ActionFailedError,
    perform_all,
    typed,
)
from quartet.types import Action, Keyboard, Outcome, TakenAction, Wait

TYPED = Keyboard(text="a")


class Recorder:
    """Performer that performs nothing and keeps what it was asked for."""

    def __init__(self) -> None:
        self.performed: list[Action] = []

    async def perform(self, action: Action) -> list[tuple[float, float]]:
        self.performed.append(action)
        return []

    async def release(self) -> None: ...


async def goes_on(action: Action) -> bool:
    return False


async def performed(actions: list[Action]) -> tuple[list[Action], list[TakenAction]]:
    performer = Recorder()
    taken = await perform_all(actions, performer, goes_on)
    return performer.performed, taken


async def test_actions_beyond_the_budget_are_not_performed_and_the_policy_reads_why():
    actions, taken = await performed([TYPED] * (MAX_ACTIONS + 2))
    assert len(actions) == MAX_ACTIONS
    assert [one.outcome for one in taken[-3:]] == [Outcome.DONE, Outcome.REFUSED, Outcome.ENDED]
    assert taken[MAX_ACTIONS].error == "more than 16 actions in one response"


def test_a_text_that_takes_too_long_to_type_is_refused():
    assert typed("a" * MAX_TYPED_CHARACTERS) == "a" * MAX_TYPED_CHARACTERS
    with pytest.raises(ActionFailedError, match="text longer than 1000 characters"):
        typed("a" * (MAX_TYPED_CHARACTERS + 1))


@pytest.mark.parametrize("seconds", [MAX_WAIT_SECONDS, 1_000.0])
async def test_waits_of_one_response_are_bounded_together(seconds):
    """A wait counts as long as it lasts, which is less than a long one asks for."""
    waits = int(MAX_WAITED_SECONDS / MAX_WAIT_SECONDS)
    actions, taken = await performed([*[Wait(seconds=seconds)] * waits, TYPED, Wait(seconds=0.5), TYPED])
    assert actions == [*[Wait(seconds=seconds)] * waits, TYPED]
    assert [one.outcome for one in taken[-3:]] == [Outcome.DONE, Outcome.REFUSED, Outcome.ENDED]
    assert taken[-2].error == "waits of more than 10 s in one response"
