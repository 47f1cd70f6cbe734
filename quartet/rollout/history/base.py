"""Interface of histories: the prompt of a turn, given the turns before it."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from msgspec.structs import replace

from quartet.config import Recipe
from quartet.errors import ConfigError
from quartet.part import Part
from quartet.policy.prompt import turn_messages
from quartet.registry import find
from quartet.rollout.episode import Episode
from quartet.types import Message, Observation, Prompt, Turn


class History(Part):
    """Choice of what a prompt shows of the turns before it.

    Tokens that were read or sampled are never made again from text: a prompt extends an earlier one, or is an earlier
    one without some of its pictures. A prompt that does not extend the last call's starts a new branch, which is one
    more training sequence.
    """

    samples: ClassVar[bool] = False
    """True if building a prompt samples from the policy. Such a prompt cannot be built again without guidance."""

    @abstractmethod
    async def prompt(self, episode: Episode, observation: Observation) -> Prompt:
        """Return the prompt for the response to the observation."""

    @classmethod
    def check(cls, settings: Any, recipe: Recipe) -> None:
        """Raise `ConfigError` if the agent loop has a history of its own."""
        loop: Any = find("loop", recipe.rollout.loop.name)
        if recipe.rollout.history.name != "all" and not loop.reads_history:
            raise ConfigError(
                f"the loop {recipe.rollout.loop.name!r} does not use rollout.history", "set rollout.loop = 'screens'"
            )

    def chats(self, turns: Sequence[Turn]) -> list[list[Message]]:
        """Return the texts that the policy read and wrote in these turns, one list per conversation."""
        return [
            [
                message
                for turn in turns
                for message in (*turn_messages(turn.observation, []), Message("assistant", turn.response))
            ]
        ]


def reopened(turns: Sequence[Turn], messages: Sequence[Message], goal: str) -> list[Message]:
    """Return the messages of a new conversation: the system's messages of the first turn, then `messages`.

    Without a `goal`, the first turn's other messages are repeated, too, since they state the task. Environments send
    all of these only at a reset. A message of the user that follows them joins theirs, since some chat templates reject
    two in a row. Messages with one of the system are complete.
    """
    if not turns or any(message.role == "system" for message in messages):
        return list(messages)
    first = turns[0].observation.messages
    opening = [message for message in first if message.role == "system" or not goal]
    if not opening or not messages or not opening[-1].role == messages[0].role == "user":
        return [*opening, *messages]
    joined = replace(messages[0], content=f"{opening[-1].content}\n{messages[0].content}".strip())
    return [*opening[:-1], joined, *messages[1:]]


def first_observation(turns: Sequence[Turn], observation: Observation) -> Observation:
    """Return the observation of the reset. Its tools are those of the episode. `observation` is the newest one."""
    return turns[0].observation if turns else observation


def with_newest_pictures(episode: Episode, prompt: Prompt, observation: Observation, count: int) -> Prompt:
    """Return a prompt that ends with the observation, with its newest `count` pictures only; with more if the
    observation has more."""
    kept = max(count, len(observation.pictures))
    return episode.model.renderer.without_pictures(prompt, max(len(prompt.media) - kept, 0))


def appended(episode: Episode, observation: Observation) -> Prompt:
    """Return the conversation of the last call, with the observation as a new message."""
    renderer, calls = episode.model.renderer, episode.model.calls
    messages = turn_messages(observation, [])
    if not calls:
        return renderer.start_chat(messages, observation.tools, observation.pictures)
    return renderer.extend_chat(calls[-1].prompt, calls[-1].response_ids, messages, observation.pictures)
