"""Pairwise judge: a model compares a response with the row's reference."""

import re
from typing import Any

from jinja2 import StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

from quartet.env.all_of import all_of
from quartet.env.rewards.base import AT_ONCE, Case, Reward
from quartet.env.scoring.judge_api import Judge, JudgeSettings, last_line
from quartet.errors import RewardError

QUESTION = """\
Compare two responses to a task.

Task:
{{ task }}

Response A:
{{ a }}

Response B:
{{ b }}

Write one sentence of reasons, then a last line with A, B or TIE alone."""
VERDICTS = {"A": 1.0, "B": 0.0, "TIE": 0.5}
"""Value of response A."""
VERDICT = re.compile(r"(?:[^:]*:\s*)?(?:Response )?(A|B|TIE)")
"""Last line of a judge's answer: the verdict, perhaps after a label."""


class PairwiseJudge(Reward):
    """1 if a judge prefers the response to the reference, 0 if it prefers the reference, 0.5 for a tie.

    The judge is asked in both orders, and the reward is the mean, since judges favour the first or the second response.
    """

    class Settings(JudgeSettings):
        column: str = "reference"
        """Column of the reference response."""
        question: str = QUESTION
        """Jinja template of the question. Variables: `task`, `a`, `b`, and the columns of the row."""

    settings: Settings
    calls_at_once = AT_ONCE
    source = "Zheng et al. 2023, Judging LLM-as-a-Judge with MT-Bench and Chatbot Arena, pairwise comparison"

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self._judge = Judge(settings)
        self._question = SandboxedEnvironment(undefined=StrictUndefined).from_string(settings.question)

    async def score(self, case: Case) -> float:
        reference = str(case.gold(self.settings.column))
        first, second = await all_of(
            self._value_of_a(case, case.response, reference), self._value_of_a(case, reference, case.response)
        )
        return (first + 1 - second) / 2

    async def _value_of_a(self, case: Case, a: str, b: str) -> float:
        named = {"task": case.prompt[-1].content, "a": a, "b": b}
        said = await self._judge.ask(self._question.render(case.row | named))
        verdict = VERDICT.fullmatch(last_line(said))
        if verdict is None:
            raise RewardError(
                f"found no verdict A, B or TIE alone in the last line of {said[-80:]!r}",
                "mend the question, so that the judge ends with the verdict alone",
            )
        return VERDICTS[verdict[1]]
