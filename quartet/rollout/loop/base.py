"""The agent loop protocol: how observations become prompts and responses become actions."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from quartet.env.base import Env
from quartet.rollout.client import ModelClient
from quartet.types import Task, Trajectory, Turn


class Limits(Struct, frozen=True, kw_only=True):
    max_turns: int
    max_tokens: int
    """Per response."""
    timeout_seconds: float
    """Per episode."""


class AgentLoop(Protocol):
    """Runs one rollout as one coroutine: observe -> generate -> act.

    Returns a trajectory with status `completed` or `truncated_*`. Infrastructure failures are raised
    (`EnvError`, `RewardError`, `EngineError`); the worker records them as statuses.
    """

    async def run(self, task: Task, env: Env, model: ModelClient, limits: Limits) -> Trajectory: ...

    def chats(self, turns: Sequence[Turn]) -> list[list[str]]:
        """What the policy read and said in these turns, one list of alternating texts per conversation."""
        ...
