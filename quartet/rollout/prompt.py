"""The text of a turn as the policy reads it. One form for tiny and large models, and for demonstrations."""

from quartet.types import Observation


def turn_text(observation: Observation, actions: list[str]) -> str:
    """Goal, what was done so far (oldest first), the last error, then one line per element.

    >>> turn_text(Observation(goal="Press next.", text="button next [2]"), ["click ok [1]"])
    'Press next.\\ndid click ok [1]\\nbutton next [2]'
    """
    lines = [observation.goal, *(f"did {action}" for action in actions)]
    if observation.error:
        lines.append(f"error {observation.error}")
    return "\n".join([*lines, observation.text])
