"""The history `sliding`: the newest pictures only, as DART shows them."""

from quartet.config.section import Positive, Section
from quartet.rollout.episode import Episode
from quartet.rollout.history.base import History, appended, with_newest_pictures
from quartet.types import Observation, Prompt


class SlidingHistory(History):
    """Show all texts, and the newest `pictures`, or all of the newest observation if these are more.

    From the first removal on, every turn removes pictures near the start of the prompt and is a branch of its own.
    `interval` trains on a fraction of the tokens; this history is for comparison with DART, which also leaves out the
    user's message of a removed picture, and texts beyond 35 turns.
    """

    class Settings(Section):
        pictures: Positive = 5
        """Number of pictures in a prompt. An observation may have several."""

    settings: Settings
    source = "DART, arXiv 2509.23866: at most 5 screenshots"

    async def prompt(self, episode: Episode, observation: Observation) -> Prompt:
        prompt = appended(episode, observation)
        return with_newest_pictures(episode, prompt, observation, self.settings.pictures)
