"""The history `compressed`: the newest observation, and a placeholder for each earlier one, as in WebAgent-R1."""

from collections.abc import Sequence

from msgspec.structs import replace

from quartet.config.section import Section
from quartet.policy.prompt import turn_messages
from quartet.rollout.episode import Episode
from quartet.rollout.history.base import History
from quartet.types import Message, Observation, Prompt, Turn


class CompressedHistory(History):
    """Show all responses, and in place of every observation but the newest a placeholder.

    The goal, or the environment's messages of the first turn, stay. A prompt grows by a response and a placeholder per
    turn, however long pages are. Every turn is a branch of its own, trained after the prompt that it was sampled from.
    The released code trains the last transcript as a whole, in which each response follows a shorter text than the one
    that the policy read.
    """

    class Settings(Section):
        placeholder: str = "** Simplified html **"
        """Text in place of an earlier observation."""

    settings: Settings
    source = "WebAgent-R1, arXiv 2505.16421, dynamic context compression; released code, webarena_env.py"

    async def prompt(self, episode: Episode, observation: Observation) -> Prompt:
        renderer, turns = episode.model.renderer, episode.turns
        newest = turn_messages(observation, [])
        if not turns:
            return renderer.start_chat(newest, observation.tools, observation.pictures)
        earlier = [self._compressed(turn.observation, place) for place, turn in enumerate(turns)]
        responses = [episode.model.calls[turn.call_index].response_ids for turn in turns]
        prompt = renderer.start_chat(earlier[0], turns[0].observation.tools)
        for response, messages in zip(responses, earlier[1:], strict=False):
            prompt = renderer.extend_chat(prompt, response, messages)
        return renderer.extend_chat(prompt, responses[-1], newest, observation.pictures)

    def chats(self, turns: Sequence[Turn]) -> list[list[Message]]:
        """Return one conversation per turn."""
        conversations, before = [], list[Message]()
        for place, turn in enumerate(turns):
            answer = Message("assistant", turn.response)
            conversations.append([*before, *turn_messages(turn.observation, []), answer])
            before += [*self._compressed(turn.observation, place), answer]
        return conversations

    def _compressed(self, observation: Observation, place: int) -> list[Message]:
        """Return the messages of an earlier turn. The first turn keeps the environment's messages, which name the task,
        or the goal."""
        if observation.messages and place == 0:
            return list(observation.messages)
        if observation.messages:
            return [replace(one, content=self.settings.placeholder) for one in observation.messages]
        goal = [observation.goal] if place == 0 and observation.goal else []
        return [Message("user", "\n".join([*goal, self.settings.placeholder]))]
