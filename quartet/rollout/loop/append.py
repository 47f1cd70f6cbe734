"""The loop `append`: one growing conversation, so that a rollout is one branch (one training sequence)."""

from collections.abc import Mapping, Sequence

from quartet.env.base import Env
from quartet.policy.prompt import turn_messages
from quartet.rollout.client import ModelClient
from quartet.rollout.episode import Episode
from quartet.rollout.loop.base import AgentLoop, Limits, first
from quartet.types import Message, Observation, Prompt, Task, Trajectory, Turn


class AppendLoop(AgentLoop):
    """Append every observation to the conversation as a new message; the model reads all earlier turns."""

    one_player = True

    async def run(self, task: Task, env: Env, models: Mapping[str, ModelClient], limits: Limits) -> list[Trajectory]:
        return [await Episode(task, env, first(models), limits).play(_prompt)]

    def chats(self, turns: Sequence[Turn]) -> list[list[Message]]:
        """Return one conversation."""
        return [
            [
                message
                for turn in turns
                for message in (*turn_messages(turn.observation, []), Message("assistant", turn.response))
            ]
        ]


def _prompt(episode: Episode, observation: Observation) -> Prompt:
    renderer, calls = episode.model.renderer, episode.model.calls
    messages = turn_messages(observation, [])
    if not calls:
        return renderer.start_chat(messages, observation.tools, observation.pictures)
    return renderer.extend_chat(calls[-1].prompt, calls[-1].response_ids, messages, observation.pictures)
