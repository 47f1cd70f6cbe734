"""The history `sliding`: the newest pictures only, as DART shows them."""

from collections.abc import Sequence

from msgspec.structs import replace

from quartet.config.section import Positive, Section
from quartet.policy.prompt import turn_messages
from quartet.rollout.episode import Episode
from quartet.rollout.history.base import History, appended, with_newest_pictures
from quartet.types import Message, Observation, Prompt, Turn


class SlidingHistory(History):
    """Show the newest `pictures`, or all of the newest observation if these are more, and all texts or those of DART.

    From the first removal on, every turn removes pictures near the start of the prompt and is a branch of its own.
    `interval` trains on a fraction of the tokens; this history is for comparison with DART.
    """

    class Settings(Section):
        pictures: Positive = 5
        """Number of pictures in a prompt. An observation may have several."""
        texts: Positive | None = None
        """Number of earlier responses in a prompt. The message of a removed picture is then left out too, except the
        first one, which names the task; 35 is DART's history. Unset, all texts stay."""

    settings: Settings
    source = "DART, arXiv 2509.23866: at most 5 screenshots; released code, at most 35 responses"

    async def prompt(self, episode: Episode, observation: Observation) -> Prompt:
        if self.settings.texts is None:
            prompt = appended(episode, observation)
            return with_newest_pictures(episode, prompt, observation, self.settings.pictures)
        renderer, turns, calls = episode.model.renderer, episode.turns, episode.model.calls
        observations = [*(turn.observation for turn in turns), observation]
        if not renderer.shows_pictures:
            observations = [replace(one, pictures=[]) for one in observations]
        first, kept = self._kept(observations, self.settings.texts)
        prompt = renderer.start_chat(turn_messages(first, []), first.tools, first.pictures)
        for turn, following in kept:
            messages, pictures = (turn_messages(following, []), following.pictures) if following else ([], [])
            prompt = renderer.extend_chat(prompt, calls[turns[turn].call_index].response_ids, messages, pictures)
        return prompt

    def chats(self, turns: Sequence[Turn]) -> list[list[Message]]:
        """Return one conversation, or one per turn with `texts`, since a later prompt may leave texts out."""
        if self.settings.texts is None:
            return super().chats(turns)
        return [self._chat(turns[: place + 1], self.settings.texts) for place in range(len(turns))]

    def _chat(self, turns: Sequence[Turn], texts: int) -> list[Message]:
        first, kept = self._kept([turn.observation for turn in turns], texts)
        messages = turn_messages(first, [])
        for turn, following in kept:
            asked = turn_messages(following, []) if following else []
            messages = [*messages, Message("assistant", turns[turn].response), *asked]
        return [*messages, Message("assistant", turns[-1].response)]

    def _kept(
        self, observations: Sequence[Observation], texts: int
    ) -> tuple[Observation, list[tuple[int, Observation | None]]]:
        """Return the first observation, without pictures if they are removed, and for each kept response the number of
        its turn and the observation after it; None if that is left out.

        Without the response before it, an observation is left out too, since two messages of a user would follow each
        other.
        """
        newest = len(observations) - 1
        left_out = max(newest - texts, 0)
        lowest = left_out + 1 if left_out else 0
        seen, shown = newest, len(observations[newest].pictures)
        while seen > lowest and (shown := shown + len(observations[seen - 1].pictures)) <= self.settings.pictures:
            seen -= 1
        following = [None if turn < seen else observations[turn] for turn in range(left_out + 1, newest + 1)]
        first = replace(observations[0], pictures=[]) if seen else observations[0]
        return first, list(zip(range(left_out, newest), following, strict=True))
