"""The loop `screens`: one conversation; the recipe's history selects what prompts show of the earlier turns."""

from collections.abc import Mapping, Sequence

from quartet.env.base import Env
from quartet.rollout.client import ModelClient
from quartet.rollout.episode import Episode
from quartet.rollout.history.base import History
from quartet.rollout.loop.base import AgentLoop, Limits, first
from quartet.types import Message, Task, Tool, Trajectory, Turn


class ScreensLoop(AgentLoop):
    """Append every observation as a new message; `rollout.history` selects what prompts show of the earlier turns."""

    one_player = True
    reads_history = True
    removes_guidance = True

    async def run(self, task: Task, env: Env, models: Mapping[str, ModelClient], limits: Limits) -> list[Trajectory]:
        return [await Episode(task, env, first(models), limits).play(self._past.prompt)]

    def chats(self, turns: Sequence[Turn]) -> list[list[Message]]:
        return self._past.chats(turns)

    def tools(self, turns: Sequence[Turn], number: int) -> list[Tool]:
        """Return the tools of the reset, which all conversations of an episode have."""
        return turns[0].observation.tools

    @property
    def _past(self) -> History:
        assert self.history is not None, "a loop that reads the history is built with one"
        return self.history
