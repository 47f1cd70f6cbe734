"""Tasks, observations, and the results of actions."""

from typing import Any

import msgspec
from msgspec import Struct, field

from quartet.types.action import TakenAction
from quartet.types.message import Message, Tool
from quartet.types.picture import Picture

ACTIONS_LEFT = "actions_left"
"""Parameter of a task that begins where an expert has this number of actions left. The rollout service plays the
expert's first actions in the reset."""

GENERATED = "generated"
"""Parameter of a task whose instruction the environment makes itself, of this number of sub-goals."""


class Task(Struct, frozen=True, kw_only=True):
    """A task in an environment: its family, seed and parameters."""

    env: str
    """Registered environment name, for example `miniwob`."""
    family: str
    """Tasks that differ only in their seed share a family; control keeps its statistics per family."""
    seed: int
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Identity of the task: tasks with the same key are equal, in all runs. The key ends with the parameters, if
        any, as JSON sorted by name."""
        params = f"/{msgspec.json.encode(self.params, order='sorted').decode()}" if self.params else ""
        return f"{self.env}/{self.family}/{self.seed}{params}"


class Observation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of the environment as shown to the policy before it responds."""

    goal: str
    text: str
    """Text that a text policy reads besides the goal; for a web page, one line per visible element."""
    guidance: str = ""
    """Advice that a guided rollout's policy reads after the goal. It is not in the prompt that is trained."""
    error: str = ""
    """Error message if the previous action was malformed or could not be done. A failure of the environment itself is
    an exception instead."""
    pictures: list[Picture] = []
    """Pictures in display order. The last one is the screen that actions point at."""
    messages: list[Message] = []
    """Chat messages, such as a system prompt or tool results. They precede goal and text, which may then be empty."""
    tools: list[Tool] = []
    """Tools that the policy may call. A conversation has the tools of its first observation."""
    prepared: list[TakenAction] = []
    """Actions of an expert in the reset, in order, in the first observation of a task with `ACTIONS_LEFT`. The loop
    `latest` shows them like actions of the policy; they have no tokens, so nothing is trained on them."""


class StepResult(Struct, frozen=True, kw_only=True):
    """Result of one environment step, in which the policy's response is executed."""

    observation: Observation
    reward: float
    terminated: bool
    """The task itself ended."""
    truncated: bool = False
    """The environment ended the episode at one of its own limits, not at a limit of Quartet."""
    info: dict[str, Any] = field(default_factory=dict)
    actions: list[TakenAction] = []
    """Actions parsed from the response, in order. If empty, the response is parsed with the grammar of
    `quartet.actions.grammar`."""
    rewards: dict[str, float] = {}
    """Named parts of `reward`, which is their sum; empty if it has no parts."""
