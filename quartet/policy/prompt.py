"""Text of a turn that the policy reads, in the same form for all models and for demonstrations."""

from quartet.types import Message, Observation

TURN_FORMAT = 1
"""Version of the turn's format. Increase it with any change of `turn_text`: older demonstrations are then rejected."""


def turn_text(observation: Observation, actions: list[str]) -> str:
    """Return the goal with its guidance, the text of the page, the actions so far (oldest first), and the last error.

    The actions are at the end, near the response, since the next action usually depends on the previous one.

    >>> turn_text(Observation(goal="Press next.", text="button next [2]"), ["click ok [1]"])
    'Press next.\\nbutton next [2]\\ndid click ok [1]'

    """
    goal = f"{observation.goal} {observation.guidance}".strip() if observation.guidance else observation.goal
    lines = [goal, observation.text, *(f"did {action}" for action in actions)]
    if observation.error:
        lines.append(f"error {observation.error}")
    return "\n".join(lines)


def turn_messages(observation: Observation, actions: list[str]) -> list[Message]:
    """Return the messages of a turn: the environment's own messages, then the text of the turn, if any.

    >>> turn_messages(Observation(goal="", text="", messages=[Message("tool", "12 °C")]), ["call weather"])
    [Message(role='tool', content='12 °C', name=None), Message(role='user', content='did call weather')]
    """
    text = turn_text(observation, actions)
    if not observation.messages:
        return [Message("user", text)]
    text = text.strip("\n")
    return [*observation.messages, Message("user", text)] if text else observation.messages
