"""Agents that need no policy: one that does nothing, one that tries what it sees, and malformed responses."""

import random
import re

from quartet.env.check.subject import Agent, Response
from quartet.types import Observation, ToolCall

REFERENCE = re.compile(r"\[(\d+)\]")
MALFORMED = (
    "",
    " \n\t",
    "!?",
    "dance",
    "click [999999]",
    "call",
    '{"name": ',
    "\x00\x1b[2J",
    "\N{SNOWMAN}\N{RIGHT-TO-LEFT OVERRIDE}",
    "9" * 5_000,
    "x" * 50_000,
)
"""Responses that no environment should fail on: empty, meaningless, cut off, with control characters, long."""


def idle(_: Observation) -> str:
    """Do nothing: declare the task done."""
    return "done"


def curious(seed: int) -> Agent:
    """Return an agent that makes random choices of what it sees: a click on a reference of the page, a call of a tool,
    or a word. Agents of the same seed make the same choices."""
    draw = random.Random(seed)

    def act(observation: Observation) -> Response:
        if observation.tools:
            function = draw.choice(observation.tools).function
            return [ToolCall(name=function.name, arguments=_arguments(function.parameters, draw))]
        references = REFERENCE.findall(observation.text)
        if references:
            return f"click [{draw.choice(references)}]"
        texts = [observation.goal, observation.text, *(message.content for message in observation.messages)]
        return draw.choice(" ".join(texts).split() or ["done"])

    return act


def stubborn(seed: int) -> Agent:
    """Return an agent that repeats its first random choice, so that most of its episodes end at their turn limit."""
    act, chosen = curious(seed), list[Response]()

    def again(observation: Observation) -> Response:
        if not chosen:
            chosen.append(act(observation))
        return chosen[0]

    return again


def repeating(responses: list[Response]) -> Agent:
    """Return an agent that gives the responses in order, whatever it sees."""
    left = iter(responses)
    return lambda _: next(left)


def _arguments(schema: dict[str, object], draw: random.Random) -> dict[str, object]:
    """Return values of simple types for the properties of a JSON Schema."""
    values = {"integer": draw.randrange(10), "number": draw.random(), "boolean": draw.random() < 0.5}
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {name: values.get(one.get("type"), "a") for name, one in properties.items()}
