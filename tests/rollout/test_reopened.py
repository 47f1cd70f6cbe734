"""Messages that begin a new conversation within an episode."""

from quartet.rollout.history.base import reopened
from quartet.types import Message, Observation, Turn

SYSTEM, TASK, NEWEST = Message("system", "Be brief."), Message("user", "Add 1 and 2."), Message("user", "did call add")


def turns(*messages: Message) -> list[Turn]:
    return [Turn(observation=Observation(goal="", text="", messages=list(messages)), call_index=0, response="call add")]


def test_a_task_in_messages_is_repeated_in_one_message_with_what_follows():
    joined = Message("user", "Add 1 and 2.\ndid call add")
    assert reopened(turns(SYSTEM, TASK), [NEWEST], "") == [SYSTEM, joined]
    assert reopened(turns(SYSTEM, TASK), [Message("tool", "3")], "") == [SYSTEM, TASK, Message("tool", "3")]


def test_a_goal_or_a_message_of_the_system_makes_the_task_superfluous():
    assert reopened(turns(SYSTEM, TASK), [NEWEST], "Add 1 and 2.") == [SYSTEM, NEWEST]
    assert reopened(turns(SYSTEM, TASK), [SYSTEM, NEWEST], "") == [SYSTEM, NEWEST]
