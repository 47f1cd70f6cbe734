"""Pointwise judge: a model rates a response on a scale."""

import re
from typing import Any

from jinja2 import StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

from quartet.config.section import PositiveFloat
from quartet.env.rewards.base import AT_ONCE, Case, Reward
from quartet.env.scoring.judge_api import Judge, JudgeSettings, last_line
from quartet.errors import RewardError

QUESTION = """\
Rate the response to a task from 0 (useless) to {{ best }} (perfect).

Task:
{{ task }}

Response:
{{ response }}

Write one sentence of reasons, then a last line with the number alone."""

_NUMBER = r"(?:\d+(?:\.\d+)?|\.\d+)"
RATING = re.compile(rf"(?:[^:]*:\s*)?(?P<rating>[-+]?{_NUMBER})(?:\s*(?:/|out of)\s*(?P<best>{_NUMBER}))?")
"""Last line of a judge's answer: the rating, perhaps after a label, perhaps with the best rating."""


class PointwiseJudge(Reward):
    """Rating by a judge, divided by the best rating.

    The rating is the number on the last line of the judge's answer, such as `7`, `7/10` or `Rating: 7`. An answer that
    ends otherwise or is cut off, and a judge that cannot be reached, are errors.
    """

    class Settings(JudgeSettings):
        question: str = QUESTION
        """Jinja template of the question. Variables: the columns of the row, and `task`, `response` and `best`, which
        hide columns of these names. Without a column `answer`, that is the extracted answer."""
        best: PositiveFloat = 10.0
        """Best rating."""

    settings: Settings
    calls_at_once = AT_ONCE
    source = "Zheng et al. 2023, Judging LLM-as-a-Judge with MT-Bench and Chatbot Arena, single answer grading"

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self._judge = Judge(settings)
        self._question = SandboxedEnvironment(undefined=StrictUndefined).from_string(settings.question)

    async def score(self, case: Case) -> float:
        named = {"task": case.prompt[-1].content, "response": case.response, "best": f"{self.settings.best:g}"}
        said = await self._judge.ask(self._question.render({"answer": case.answer} | case.row | named))
        rating = _rating(last_line(said), self.settings.best)
        if not 0 <= rating <= self.settings.best:
            raise RewardError(
                f"found no rating from 0 to {self.settings.best:g} in the last line of {said[-80:]!r}",
                "mend the question, so that the judge ends with the number alone",
            )
        return rating / self.settings.best


def _rating(line: str, best: float) -> float:
    """Return the number that a line consists of; -1 for any other line."""
    found = RATING.fullmatch(line)
    if found is None or (found["best"] and float(found["best"]) != best):
        return -1.0
    return float(found["rating"])
