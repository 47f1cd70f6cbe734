"""The history `interval`: pictures are removed in blocks, so that most turns extend the prompt before them."""

from quartet.config.section import Positive, Section
from quartet.rollout.episode import Episode
from quartet.rollout.history.base import History, appended, with_newest_pictures
from quartet.types import Observation, Prompt


class IntervalHistory(History):
    """Show all texts, and between `min` and `min + every - 1` of the newest pictures.

    When a prompt would show one more, its oldest pictures are removed and `min` are left, or all of the newest
    observation if these are more. The prompt then starts a new branch; until the next removal prompts are append-only.
    """

    class Settings(Section):
        min: Positive = 5
        """Number of pictures that a removal leaves. An observation may have several."""
        every: Positive = 10
        """Number of pictures beyond `min` at which the oldest are removed. With one picture per turn it is the number
        of turns from one removal to the next."""

    settings: Settings
    source = "Anthropic 2025, best practices for computer use: removal of pictures in intervals"

    async def prompt(self, episode: Episode, observation: Observation) -> Prompt:
        prompt = appended(episode, observation)
        if len(prompt.media) < self.settings.min + self.settings.every:
            return prompt
        return with_newest_pictures(episode, prompt, observation, self.settings.min)
