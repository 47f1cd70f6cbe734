"""Interface of agent loops: turn observations into prompts and responses into actions."""

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
    """Limit per response."""
    timeout_seconds: float
    """Limit per episode."""


def first(models: Mapping[str, ModelClient]) -> ModelClient:
    """Return the model of the run's first trained policy."""
    return next(iter(models.values()))


class AgentLoop(Part):
    """Loop of one rollout as one coroutine: observe -> generate -> act.

    It returns a trajectory with status `completed` or `truncated_*`, or one for each part that a policy played. It
    raises infrastructure failures (`EnvError`, `RewardError`, `EngineError`), which the worker records as statuses.
    """

    one_player: ClassVar[bool] = False
    """True if the first trained policy plays alone; a run that trains several is then refused."""

    @abstractmethod
    async def run(self, task: Task, env: Env, models: Mapping[str, ModelClient], limits: Limits) -> list[Trajectory]:
        """Run the rollout to its end. `models` are the run's policies by name; a loop with one agent takes
        `first(models)`.

        Each trajectory names the policy that sampled its calls; if there are several, each has its own `part`.
        """

    @abstractmethod
    def chats(self, turns: Sequence[Turn]) -> list[list[Message]]:
        """Return the messages that the policy read and wrote in these turns, one list per conversation."""
