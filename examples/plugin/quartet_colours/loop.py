"""An agent loop without memory: every turn is a conversation of its own."""

from collections.abc import Sequence

from quartet.env.base import Env
from quartet.rollout.client import ModelClient
from quartet.rollout.episode import Episode
from quartet.rollout.loop.base import AgentLoop, Limits
from quartet.rollout.prompt import turn_text
from quartet.types import Observation, Task, Trajectory, Turn


class NewestPage(AgentLoop):
    """The model sees the newest page and nothing else."""

    async def run(self, task: Task, env: Env, model: ModelClient, limits: Limits) -> Trajectory:
        return await Episode(task, env, model, limits).play(_prompt)

    def chats(self, turns: Sequence[Turn]) -> list[list[str]]:
        return [[turn_text(turn.observation, []), turn.response] for turn in turns]


def _prompt(episode: Episode, observation: Observation) -> list[int]:
    return episode.model.renderer.start(turn_text(observation, []))
