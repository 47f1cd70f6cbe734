"""A task, what an environment shows of it, and what an action leads to."""

from typing import Any

import msgspec
from msgspec import Struct, field


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


class Observation(Struct, frozen=True, kw_only=True):
    """What the policy is shown before it responds."""

    goal: str
    text: str
    """Everything a text policy reads besides the goal, for a page: one line per visible element."""
    error: str = ""
    """Set when the previous action was malformed or could not be done: the policy's own doing, never a crash."""
    screenshot: bytes | None = None
    """Encoded picture (PNG, JPEG or WebP), or None."""


class StepResult(Struct, frozen=True, kw_only=True):
    """What one action led to."""

    observation: Observation
    reward: float
    terminated: bool
    """The task itself ended."""
    truncated: bool = False
    """The environment cut the episode off (its own limit, not ours)."""
    info: dict[str, Any] = field(default_factory=dict)
