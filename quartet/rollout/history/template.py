"""The history `template`: earlier turns as the model's own chat template shows them, without thoughts for example."""

from quartet.policy.prompt import turn_messages
from quartet.rollout.episode import Episode
from quartet.rollout.history.base import History, appended, first_observation
from quartet.types import Message, Observation, Prompt


class TemplateHistory(History):
    """Show the conversation as the chat template writes it. Where the template rewrites an earlier turn, the prompt
    starts a new branch; elsewhere it extends the last one, with the ids that were sampled."""

    source = "Qwen Team 2025, Qwen3: its chat template keeps no thoughts of earlier turns"

    async def prompt(self, episode: Episode, observation: Observation) -> Prompt:
        messages = [
            message
            for turn in episode.turns
            for message in (*turn_messages(turn.observation, []), Message("assistant", turn.response))
        ]
        tools = first_observation(episode.turns, observation).tools
        whole = [*messages, *turn_messages(observation, [])]
        return episode.model.renderer.as_template(appended(episode, observation), whole, tools)
