"""Symbolic equality of mathematical answers by Math-Verify, the checker of TRL, verl and Open-R1."""

from functools import cached_property
from typing import Any

from quartet.config.section import Positive, Section
from quartet.env.rewards.base import Case, Reward
from quartet.env.scoring.limited import limited
from quartet.errors import RewardError, SetupError


class Math(Reward):
    r"""1 if the response's last expression (LaTeX, `\boxed{}` or plain) equals the row's symbolically, else 0.

    Sets, intervals, matrices, equations and units are compared too. A response that cannot be read, or needs too much
    time or memory, is wrong; a right answer that cannot be read is an error. Needs the package `math-verify` (extra
    `rewards`).
    """

    class Settings(Section):
        column: str = "answer"
        """Column of the right answer, in LaTeX or as a plain expression."""
        response_seconds: Positive = 4
        """Maximum processor time of reading and comparing a response; a response that needs more is wrong. Lower than
        `timeout_seconds`, whose excess is an error."""

    settings: Settings
    source = "Math-Verify, Hugging Face"

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        try:
            import math_verify
        except ImportError as error:
            raise SetupError(
                "the reward math needs the package math-verify", "pip install 'quartet-rl[rewards]'"
            ) from error
        self._library: Any = math_verify

    def score(self, case: Case) -> float:
        gold = str(case.gold(self.settings.column))
        right = self._parse(gold if "$" in gold or "\\boxed" in gold else f"${gold}$") or self._parse(gold)
        if not right:
            raise RewardError(f"cannot read {gold!r:.80} as mathematics", "fix the row, or use another reward")
        same = limited(lambda: self._compare(right, case.response), self.settings.response_seconds)
        return same or 0.0

    def _compare(self, right: list[Any], response: str) -> float:
        return float(self._library.verify(right, self._parse(response), timeout_seconds=None))

    def _parse(self, text: str) -> list[Any]:
        return self._library.parse(text, parsing_timeout=None, extraction_config=self._targets)

    @cached_property
    def _targets(self) -> Any:
        return (self._library.LatexExtractionConfig(), self._library.ExprExtractionConfig())
