"""Exact equality of numbers, such as the answers of GSM8K."""

from fractions import Fraction

from quartet.config.section import Section
from quartet.env.dataset.answers import last_number
from quartet.env.rewards.base import Case, Reward
from quartet.errors import RewardError


class Number(Reward):
    """1 if the last number of the answer equals the last number of the row's answer, else 0.

    The numbers are compared exactly: 0.5, 1/2 and 5e-1 are equal, 0.3333 and 1/3 are not.
    """

    class Settings(Section):
        column: str = "answer"
        """Column of the right answer; a text may end with it, as `... #### 72` does."""

    settings: Settings

    def score(self, case: Case) -> float:
        right = value_of(str(case.gold(self.settings.column)))
        if right is None:
            raise RewardError(
                f"found no number in the column {self.settings.column!r}", "name the column of the right answers"
            )
        return float(value_of(case.answer) == right)


def value_of(text: str) -> Fraction | None:
    """Return the last number of a text; None if it has none."""
    numerator, _, denominator = last_number(text).partition("/")
    try:
        return Fraction(numerator) / Fraction(denominator or 1)
    except (ValueError, ZeroDivisionError):
        return None
