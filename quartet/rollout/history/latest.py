"""The history `latest`: the instructions, the task, the newest observation and the earlier actions as text.

Prompts stay short in long episodes, and every turn is a separate branch (training sequence).
"""

from collections.abc import Sequence

from quartet.policy.prompt import turn_messages
from quartet.rollout.episode import Episode, actions_of
from quartet.rollout.history.base import History, first_observation, reopened
from quartet.types import Message, Observation, Prompt, Turn


class LatestHistory(History):
    """Begin a new conversation in every turn, with the system's messages of the first turn, and with all messages of
    that turn where no goal names the task."""

    async def prompt(self, episode: Episode, observation: Observation) -> Prompt:
        messages = _messages(episode.turns, observation)
        tools = first_observation(episode.turns, observation).tools
        return episode.model.renderer.start_chat(messages, tools, observation.pictures)

    def chats(self, turns: Sequence[Turn]) -> list[list[Message]]:
        return [
            [*_messages(turns[:index], turn.observation), Message("assistant", turn.response)]
            for index, turn in enumerate(turns)
        ]


def _messages(turns: Sequence[Turn], observation: Observation) -> list[Message]:
    first = first_observation(turns, observation)
    prepared = [action.canonical for action in first.prepared if action.canonical]
    return reopened(turns, turn_messages(observation, [*prepared, *actions_of(turns)]), observation.goal)
