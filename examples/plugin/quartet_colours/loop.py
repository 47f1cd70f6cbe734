"""Agent loop without memory: every turn begins a new conversation."""

from collections.abc import Mapping, Sequence

from quartet.env.base import Env
from quartet.policy.prompt import turn_messages
from quartet.rollout.client import ModelClient
from quartet.rollout.episode import Episode
from quartet.rollout.loop.base import AgentLoop, Limits, first
from quartet.types import Message, Observation, Prompt, Task, Trajectory, Turn


class NewestPage(AgentLoop):
    """Loop whose prompts contain only the newest observation."""

    async def run(self, task: Task, env: Env, models: Mapping[str, ModelClient], limits: Limits) -> list[Trajectory]:
        return [await Episode(task, env, first(models), limits).play(_prompt)]

    def chats(self, turns: Sequence[Turn]) -> list[list[Message]]:
        return [[*turn_messages(turn.observation, []), Message("assistant", turn.response)] for turn in turns]


def _prompt(episode: Episode, observation: Observation) -> Prompt:
    return episode.model.renderer.start_chat(turn_messages(observation, []), observation.tools)
