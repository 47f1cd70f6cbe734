"""The interface of agent loops: how observations become prompts and responses become actions."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from msgspec import Struct

from quartet.env.base import Env
from quartet.part import Part
from quartet.rollout.client import ModelClient
from quartet.types import Message, Task, Trajectory, Turn


class Limits(Struct, frozen=True, kw_only=True):
    max_turns: int
    max_tokens: int
    """Per response."""
    timeout_seconds: float
    """Per episode."""


def first(models: Mapping[str, ModelClient]) -> ModelClient:
    """Return the model of the run's first trained policy."""
    return next(iter(models.values()))


class AgentLoop(Part):
    """Runs one rollout as one coroutine: observe -> generate -> act.

    Returns a trajectory with status `completed` or `truncated_*`, or one for each part that a policy played.
    Infrastructure failures are raised (`EnvError`, `RewardError`, `EngineError`); the worker records them as statuses.
    """

    one_player: ClassVar[bool] = False
    """Whether the first trained policy plays alone: a run that trains several is then refused."""

    @abstractmethod
    async def run(self, task: Task, env: Env, models: Mapping[str, ModelClient], limits: Limits) -> list[Trajectory]:
        """Run the rollout to its end, with the run's policies by name; a loop with one agent takes `first(models)`.

        A trajectory names the policy that sampled its calls; of several each has its own `part`.
        """

    @abstractmethod
    def chats(self, turns: Sequence[Turn]) -> list[list[Message]]:
        """Return what the policy read and said in these turns, one list of messages per conversation."""
