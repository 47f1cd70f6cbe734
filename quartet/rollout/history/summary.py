"""The history `summary`: the policy writes a summary of the earlier turns, which replaces them in prompts."""

from collections.abc import Sequence
from typing import NoReturn

from quartet.config.section import Positive, Section
from quartet.errors import ConfigError
from quartet.policy.prompt import turn_messages
from quartet.rollout.episode import Episode
from quartet.rollout.history.base import History, appended, first_observation, reopened
from quartet.types import Message, Observation, Prompt, Turn


class SummaryHistory(History):
    """Ask the policy for a summary after every `every` turns, and begin a new branch with the system's messages, the
    goal or the messages that state the task, the summary and the newest observation.

    The summary is a call of the conversation that it summarises: its tokens are trained with the rollout's return, and
    the new branch reads the sampled tokens themselves.
    """

    class Settings(Section):
        every: Positive = 8
        """Number of turns from one summary to the next."""
        max_tokens: Positive = 128
        """Maximum length of a summary."""
        request: str = "Summarise what was done and seen so far, and what is left to do."
        """The message that asks for a summary."""

    settings: Settings
    samples = True
    source = "CompactionRL, arXiv 2607.05378: summaries that are trained"

    async def prompt(self, episode: Episode, observation: Observation) -> Prompt:
        turns = len(episode.turns)
        if not turns or turns % self.settings.every:
            return appended(episode, observation)
        model, asked = episode.model, Message("user", self.settings.request)
        last = model.calls[-1]
        request = model.renderer.extend_chat(last.prompt, last.response_ids, [asked])
        summary = await model.generate(request, self.settings.max_tokens)
        tools = first_observation(episode.turns, observation).tools
        task = Message("user", f"{observation.goal}\n{self.settings.request}".strip())
        begun = model.renderer.start_chat(reopened(episode.turns, [task], observation.goal), tools)
        messages = turn_messages(observation, [])
        return model.renderer.extend_chat(begun, summary.response_ids, messages, observation.pictures)

    def chats(self, turns: Sequence[Turn]) -> NoReturn:
        """Raise `ConfigError`: turns do not contain the summaries, without which the policy read no conversation."""
        raise ConfigError(
            "rollouts with the history 'summary' are no chats, since their turns do not contain the summaries",
            "export them as jsonl or parquet, which keep every call",
        )
