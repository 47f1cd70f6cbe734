"""Match of a response with a pattern, for example for its format."""

import re

from quartet.config.section import PositiveFloat, Section
from quartet.env.rewards.base import Case, Reward
from quartet.env.scoring.processor_time import ProcessorTime, ProcessorTimeError


class Regex(Reward):
    """1 if the whole response matches `pattern`, else 0. A dot matches a newline.

    A response with which the pattern needs too much time is wrong, as one that does not match.
    """

    class Settings(Section):
        pattern: str
        """Regular expression of Python."""
        response_seconds: PositiveFloat = 1.0
        """Maximum processor time of one match; a response that needs more is wrong. Set `timeout_seconds`, whose excess
        is an error, to several times this, since it counts seconds of the clock."""

    settings: Settings

    def score(self, case: Case) -> float:
        try:
            with ProcessorTime(self.settings.response_seconds):
                return float(re.fullmatch(self.settings.pattern, case.response.strip(), re.DOTALL) is not None)
        except ProcessorTimeError:
            return 0.0
