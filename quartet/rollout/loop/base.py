"""Interface of agent loops: turn observations into prompts and responses into actions."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct

from quartet.config import Recipe
from quartet.env.base import Env
from quartet.part import Part
from quartet.registry import build
from quartet.rollout.client import ModelClient
from quartet.types import Message, Task, Tool, Trajectory, Turn

if TYPE_CHECKING:
    from quartet.rollout.history.base import History


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of one rollout."""

    max_turns: int
    max_tokens: int
    """Maximum length of one response."""
    timeout_seconds: float
    """Maximum duration of the episode."""


def first(models: Mapping[str, ModelClient]) -> ModelClient:
    """Return the model of the run's first trained policy."""
    return next(iter(models.values()))


class AgentLoop(Part):
    """Loop of one rollout as one coroutine: observe -> generate -> act.

    It returns one trajectory with status `completed` or `truncated_*`, or several, one for each role of a policy. It
    raises infrastructure failures (`EnvError`, `RewardError`, `EngineError`), which the worker records as statuses.
    """

    one_player: ClassVar[bool] = False
    """True if only the first trained policy acts; a recipe that trains several policies is then an error."""
    reads_history: ClassVar[bool] = False
    """True if the prompts are those of `rollout.history`."""
    removes_guidance: ClassVar[bool] = False
    """True if guidance in observations is left out of the prompts that are trained, as `Episode.play` does."""

    def __init__(self, settings: Any, history: "History | None" = None) -> None:
        super().__init__(settings)
        self.history = history

    @abstractmethod
    async def run(self, task: Task, env: Env, models: Mapping[str, ModelClient], limits: Limits) -> list[Trajectory]:
        """Run the rollout to its end. `models` are the run's policies by name; a loop with one agent uses
        `first(models)`.

        Each trajectory has the name of the policy that sampled its calls. If there are several trajectories, each has
        its own `part`.
        """

    @abstractmethod
    def chats(self, turns: Sequence[Turn]) -> list[list[Message]]:
        """Return the messages that the policy read and wrote in these turns, one list per conversation."""

    def tools(self, turns: Sequence[Turn], number: int) -> list[Tool]:
        """Return the tools of a conversation of `chats`, by its number: those of its turn."""
        return turns[number].observation.tools


def loop_of(recipe: Recipe) -> AgentLoop:
    """Return the recipe's agent loop with its history."""
    return build(recipe.rollout.loop, build(recipe.rollout.history))
