"""A task, what an environment shows of it, and what an action leads to."""

from typing import Any

import msgspec
from msgspec import Struct, field

from quartet.types.action import TakenAction
from quartet.types.message import Message, Tool


class Task(Struct, frozen=True, kw_only=True):
    """Something to be done in an environment."""

    env: str
    """Registered environment name, for example `miniwob`."""
    family: str
    """Tasks that differ only in their seed share a family; control keeps its statistics per family."""
    seed: int
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Stable identity: the same key means the same task, in every run. Parameters stand in it as JSON, sorted by
        name; a task without any has a key without them."""
        params = f"/{msgspec.json.encode(self.params, order='sorted').decode()}" if self.params else ""
        return f"{self.env}/{self.family}/{self.seed}{params}"


class Picture(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An encoded picture (PNG, JPEG or WebP), or a reference to one that is stored."""

    content_hash: str = ""
    """SHA-256 of the encoded picture in hex: its blob. Empty until it is stored."""
    data: bytes = b""
    """Empty in a record: pictures are read on their own, and late."""


class Observation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the policy is shown before it responds."""

    goal: str
    text: str
    """Everything a text policy reads besides the goal, for a page: one line per visible element."""
    error: str = ""
    """Set when the previous action was malformed or could not be done: the policy's own doing, never a crash."""
    pictures: list[Picture] = []
    """In the order of their showing. The last one is the screen that actions point at."""
    messages: list[Message] = []
    """Of a chat: a system prompt, results of tools. They stand before goal and text, which may then be empty."""
    tools: list[Tool] = []
    """What the policy may call. A conversation has the tools of its first observation."""


class StepResult(Struct, frozen=True, kw_only=True):
    """What one action led to."""

    observation: Observation
    reward: float
    terminated: bool
    """The task itself ended."""
    truncated: bool = False
    """The environment cut the episode off (its own limit, not ours)."""
    info: dict[str, Any] = field(default_factory=dict)
    actions: list[TakenAction] = []
    """What the response was taken for, in order. Empty where the environment does not say: then it is read in the
    grammar of `quartet.actions.grammar`."""
    rewards: dict[str, float] = {}
    """Named parts of `reward`, which is their sum; empty where it has no parts."""
